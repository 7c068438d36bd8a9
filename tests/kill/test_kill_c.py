"""Kills the C runner and the C host before each of their stores to the segment, and looks how the
other side fares.

A test build (SHMB_STEPS) counts the stores and stops the process before a chosen one. One seed by
default; --torture: many.
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHM = Path("/dev/shm")
PATIENCE = 2.0  # seconds that a survivor may take
pytestmark = pytest.mark.slow
OK, NO_HOST, HOST_GONE, TIMEOUT = 0, 3, 9, 12
WAITS = ("block", "adaptive", "spin")


def _compiler() -> str:
    for name in (os.environ.get("CC", ""), "cc", "gcc", "clang", "clang-22", "clang-19"):
        if (
            name
            and subprocess.run(["sh", "-c", f"command -v {name}"], capture_output=True).returncode
            == 0
        ):
            return name
    pytest.skip("no C compiler")


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of victim_runner and victim_host, built to stop before a chosen store."""
    out = tmp_path_factory.mktemp("victims")
    for victim in ("victim_runner", "victim_host"):
        subprocess.run(
            [
                _compiler(),
                "-std=c11",
                "-O1",
                "-D_GNU_SOURCE",
                "-DSHMB_STEPS",
                '-DSHMB_VERSION_TEXT="test"',
                "-pthread",
            ]
            + [f"-I{ROOT}/cdef/include", f"-I{ROOT}/cdef/src", f"-I{ROOT}/tests/c"]
            + [
                f"{ROOT}/tests/kill/{victim}.c",
                *map(str, sorted(ROOT.glob("cdef/src/**/*.c"))),
                "-o",
                f"{out}/{victim}",
            ],
            check=True,
        )
    return out


def _step_environment(step: int, number: int = signal.SIGKILL) -> dict[str, str]:
    return {**os.environ, "SHMB_STEP": str(step), "SHMB_STEP_SIGNAL": str(int(number))}


class Host:
    """A victim_host process, perhaps one that dies before a store."""

    def __init__(
        self, build: Path, name: str, wait: str, step: int = 0, number: int = signal.SIGKILL
    ) -> None:
        self.process = subprocess.Popen(
            [build / "victim_host", name, wait],
            env=_step_environment(step, number),
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def serving(self) -> bool:
        """Waits until it serves; False when it died before."""
        assert self.process.stdout
        return self.process.stdout.readline() == "serving\n"

    def ask(self) -> tuple[int, int]:
        """How many runners it knows of, and the stores so far."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        _, attached, steps = self.process.stdout.readline().split()
        return int(attached), int(steps)

    def end(self) -> None:
        """Lets it close its bridge; it must have found nothing wrong."""
        self.process.communicate(timeout=10)
        assert self.process.returncode == 0

    def died(self) -> bool:
        """Waits for its end; True when it was killed."""
        self.process.wait(timeout=20)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()
        return self.process.returncode == -signal.SIGKILL


def _runner(build: Path, name: str, query: str, step: int = 0) -> subprocess.Popen[str]:
    command: list[str | Path] = [build / "victim_runner", name, query]
    return subprocess.Popen(command, env=_step_environment(step), text=True, stdout=subprocess.PIPE)


def _result(runner: subprocess.Popen[str]) -> tuple[int, float, int]:
    """The runner's status, when it had it (time.monotonic's seconds), and its number of stores."""
    out, _ = runner.communicate(timeout=30)
    assert runner.returncode == 0, f"the runner ended with {runner.returncode}: {out}"
    _, status, at, steps, *_ = out.split(maxsplit=4)
    return int(status), int(at) / 1e9, int(steps)


def _result_or_death(runner: subprocess.Popen[str], watch: int) -> tuple[int, float, float]:
    """The runner's status and when it had it, and when the process behind the pidfd died (or the
    runner ended)."""
    poller = select.poll()
    poller.register(watch, select.POLLIN)
    assert runner.stdout
    poller.register(runner.stdout.fileno(), select.POLLIN)
    assert poller.poll(20000), "neither did the host die nor the runner end"
    died = time.monotonic()
    status, at, _ = _result(runner)
    return status, at, died


def _left(name: str) -> set[str]:
    """The names below /dev/shm of the bridges that begin with `name`, and of their semaphores."""
    found: set[str] = set()
    for path in SHM.glob(f"shmb.{name}*"):
        session = (
            path.name.rpartition("~")[2] if "~" in path.name else path.read_bytes()[24:40].hex()
        )
        found |= {path.name, *(p.name for p in SHM.glob(f"sem.shmb-{session}-*"))}
    return found


@pytest.fixture
def name(request: pytest.FixtureRequest) -> Iterator[str]:
    """A bridge's name. What killed hosts leave is removed at the end, as `shmbridge gc` does."""
    unique = f"kill-{os.getpid()}-{time.monotonic_ns() % 100000}"
    yield unique
    for left in _left(unique):
        (SHM / left).unlink()


def _summary(title: str, steps: int, killed: int, latencies: list[float]) -> None:
    ordered = sorted(latencies) or [0.0]
    at = {p: 1e3 * ordered[min(len(ordered) - 1, p * len(ordered) // 100)] for p in (50, 90, 99)}
    print(f"\n{title}: {steps} stores, {killed} kills, {len(latencies)} detections: "
          f"{at[50]:.1f} ms median, {at[90]:.1f} ms 90 %, {at[99]:.1f} ms 99 %, "
          f"{1e3 * ordered[-1]:.1f} ms at most")  # fmt: skip


def _seeds(request: pytest.FixtureRequest) -> list[int]:
    return list(range(30)) if request.config.getoption("--torture") else [0]


def test_runner_killed_at_each_store(
    build: Path, name: str, request: pytest.FixtureRequest
) -> None:
    """The host notices within the time allowed, kept bytes stay, and the next runner has the only
    channel."""
    latencies: list[float] = []
    most = killed = 0
    for seed in _seeds(request):
        random.seed(seed)
        host = Host(build, name, WAITS[seed % 3])
        assert host.serving()
        query = f"wait={WAITS[seed // 3 % 3]}"
        status, _, steps = _result(_runner(build, name, query))
        assert status == 0
        most = max(most, steps)
        for step in random.sample(range(1, steps + 1), steps):
            victim = _runner(build, name, query, step)
            victim.communicate(timeout=30)
            died = time.monotonic()
            if victim.returncode == 0:
                continue  # it slept less often than the first one, so that the store was never made
            assert victim.returncode == -signal.SIGKILL
            killed += 1
            attached, _ = host.ask()
            while host.ask()[0]:
                assert time.monotonic() - died < PATIENCE
                time.sleep(0.001)
            if attached:
                latencies.append(time.monotonic() - died)
            if step % 5 == 0:
                assert _result(_runner(build, name, query))[0] == 0
        assert _result(_runner(build, name, query))[0] == 0
        host.end()
    assert not _left(name)
    _summary("runner killed", most, killed, latencies)


def test_host_killed_at_each_store(build: Path, name: str, request: pytest.FixtureRequest) -> None:
    """The runner has its error within the time allowed; each host takes over what the one before it
    left."""
    latencies: list[float] = []
    most = killed = 0
    for seed in _seeds(request):
        random.seed(seed)
        wait, query = WAITS[seed % 3], f"wait={WAITS[seed // 3 % 3]}"
        host = Host(build, name, wait)
        assert host.serving()
        assert _result(_runner(build, name, query))[0] == 0
        steps = host.ask()[1]
        most = max(most, steps)
        host.end()
        for step in random.sample(range(1, steps + 1), steps):
            host = Host(build, name, wait, step)
            if not host.serving():
                assert host.died()
                killed += 1
                continue
            runner = _runner(build, name, query + "&connect_timeout=0.3")
            watch = os.pidfd_open(host.process.pid)
            status, at, died = _result_or_death(runner, watch)
            os.close(watch)
            # The store was never made, or a loaded machine did not come to accept the claim.
            if status in (
                OK,
                TIMEOUT,
            ):
                host.process.kill()
                host.died()
                continue
            # NO_HOST: it was connecting, and waited for another.
            assert status in (
                NO_HOST,
                HOST_GONE,
            )
            assert host.died()
            killed += 1
            assert at - died < PATIENCE
            if status == HOST_GONE:
                latencies.append(at - died)
        host = Host(build, name, wait)
        assert host.serving()
        assert _result(_runner(build, name, query))[0] == 0
        host.end()
    # What a host left that died before its segment had its name.
    for path in SHM.glob(f"shmb.{name}*"):
        assert "~" in path.name
    _summary("host killed", most, killed, latencies)


def test_host_stopped_at_a_store_is_not_dead(build: Path, name: str) -> None:
    """A host that is stopped for longer than any detection takes keeps its runner, which then ends
    well."""
    for step in (20, 40, 60):
        host = Host(build, name, "block", step, signal.SIGSTOP)
        assert host.serving()
        runner = _runner(build, name, "wait=block")
        os.waitpid(host.process.pid, os.WUNTRACED)
        time.sleep(0.6)
        assert runner.poll() is None
        host.process.send_signal(signal.SIGCONT)
        assert _result(runner)[0] == 0
        host.end()
