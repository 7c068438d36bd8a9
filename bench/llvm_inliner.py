"""The cost of a Python policy for clang's inlining: alternates plain -Oz with -Oz and the plug-in.

    python bench/llvm_inliner.py [--rounds N] [--source FILE.c] [--json FILE]

A round compiles the program with each: plain, with shmbridge's plug-in, and with LLVM's own
interactive channel (two named pipes), with the same policy. Ratios are taken within a round; the
medians of the rounds are printed. Needs shmbridge installed and clang-N, llvm-N-dev, cmake and a
C++ compiler, for N = 22 or 19 or both.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from sources import fetch_zstd

import shmbridge

INLINER = Path(__file__).parents[1] / "examples" / "llvm" / "inliner"
NAME = f"bench-inliner-{os.getpid()}"


class Policy:
    """examples/llvm/inliner/policy.py, and its decisions."""

    def __init__(self) -> None:
        sys.path.insert(0, str(INLINER))
        from policy import advise  # type: ignore[import-not-found]

        self._advise: Callable[[Mapping[str, Any]], int] = advise
        self.decisions = 0
        self.inlined = 0
        self.seconds = 0.0

    def __call__(self, request: Mapping[str, Any]) -> int:
        start = time.perf_counter()
        advice = self._advise(request)
        self.seconds += time.perf_counter() - start
        self.decisions += 1
        self.inlined += advice
        return advice


@contextmanager
def bridge(policy: Policy) -> Iterator[None]:
    with shmbridge.Host(NAME) as host:
        thread = threading.Thread(target=host.serve, args=(policy,))
        thread.start()
        yield
    thread.join()


@contextmanager
def pipes(base: Path, policy: Policy) -> Iterator[None]:
    """The host of LLVM's interactive channel, for one compilation."""
    for end in (".in", ".out"):
        os.mkfifo(f"{base}{end}")

    def answer() -> None:
        with open(f"{base}.in", "wb", buffering=0) as reply, open(f"{base}.out", "rb") as ask:
            names = [feature["name"] for feature in json.loads(ask.readline())["features"]]
            ask.readline()  # the context, which the inliner leaves empty
            while ask.readline():
                values = np.frombuffer(ask.read(8 * len(names) + 1), np.int64, len(names))
                reply.write(struct.pack("q", policy(dict(zip(names, values, strict=True)))))

    thread = threading.Thread(target=answer)
    thread.start()
    yield
    thread.join()
    for end in (".in", ".out"):
        os.unlink(f"{base}{end}")


def build_plugin(
    version: int, build: Path, source: Path = INLINER, name: str = "shmbridge-inliner.so"
) -> Path:
    def output(*command: str) -> str:
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    llvm = output(f"llvm-config-{version}", "--cmakedir")
    package = output(
        os.path.join(sysconfig.get_path("scripts"), "shmbridge"), "config", "--cmakedir"
    )
    output(
        "cmake",
        "-S",
        str(source),
        "-B",
        str(build),
        f"-DLLVM_DIR={llvm}",
        f"-Dshmbridge_DIR={package}",
    )
    output("cmake", "--build", str(build))
    return build / name


def text_bytes(version: int, compiled: Path) -> int:
    """The size of the object's code and constants."""
    size = subprocess.run(
        [f"llvm-size-{version}", compiled], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    return int(size.splitlines()[1].split()[0])


def measure(version: int, source: Path, folder: Path, rounds: int) -> dict[str, float]:
    """Compiles `rounds` times in each way. Times are in seconds; names with us are microseconds."""
    plugin = build_plugin(version, folder / f"build{version}")
    channel = folder / f"channel{version}"
    policy, piped = Policy(), Policy()

    def cpu() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def compile_with(way: str, *options: str) -> float:
        start, start_cpu = time.perf_counter(), cpu()
        out = folder / f"{way}{version}.o"
        subprocess.run(
            [f"clang-{version}", "-Oz", "-c", source, "-o", out, *options],
            check=True,
            env=os.environ | {"SHMBRIDGE_URL": NAME},
        )
        cpu_times.setdefault(way, []).append(cpu() - start_cpu)
        return time.perf_counter() - start

    cpu_times: dict[str, list[float]] = {}
    times: list[tuple[float, float, float]] = []
    for _ in range(rounds):
        plain = compile_with("plain")
        with bridge(policy):
            shm = compile_with("shmbridge", f"-fpass-plugin={plugin}")
        with pipes(channel, piped):
            base = f"-inliner-interactive-channel-base={channel}"
            pipe = compile_with("pipes", "-mllvm", "-enable-ml-inliner=release", "-mllvm", base)
        times.append((plain, shm, pipe))
    if (folder / f"shmbridge{version}.o").read_bytes() != (
        folder / f"pipes{version}.o"
    ).read_bytes():
        raise SystemExit(
            f"clang-{version}: expected the same object through shmbridge and through the pipes"
        )

    decisions = policy.decisions // rounds
    return {
        "llvm": version,
        "decisions": decisions,
        "inlined": policy.inlined // rounds,
        "plain_s": median(t[0] for t in times),
        "shmbridge_s": median(t[1] for t in times),
        "pipes_s": median(t[2] for t in times),
        **{f"{way}_cpu_s": median(taken) for way, taken in cpu_times.items()},
        "shmbridge_ratio": median(t[1] / t[0] for t in times),
        "pipes_ratio": median(t[2] / t[0] for t in times),
        "shmbridge_us_per_decision": median((t[1] - t[0]) / decisions for t in times) * 1e6,
        "pipes_us_per_decision": median((t[2] - t[0]) / decisions for t in times) * 1e6,
        "policy_us_per_decision": policy.seconds / policy.decisions * 1e6,
        "plain_bytes": text_bytes(version, folder / f"plain{version}.o"),
        "shmbridge_bytes": text_bytes(version, folder / f"shmbridge{version}.o"),
    }


def report(r: dict[str, float]) -> None:
    print(f"clang-{r['llvm']} -Oz: {r['decisions']} decisions, {r['inlined']} of them to inline")
    print(f"  {'':12}{'time':>9}{'ratio':>9}{'clang CPU':>12}{'a decision':>13}{'text':>11}")
    for way in ("plain", "shmbridge", "pipes"):
        ratio, cost = r.get(f"{way}_ratio", 1), r.get(f"{way}_us_per_decision", 0)
        text = r["plain_bytes" if way == "plain" else "shmbridge_bytes"]
        print(
            f"  {way:12}{r[f'{way}_s']:7.2f} s{ratio:9.3f}{r[f'{way}_cpu_s']:10.2f} s{cost:10.1f} us{text:9} B"
        )
    print(f"  A decision's cost holds LLVM's 38 features, what inlining differently costs or saves, and the policy's own"
          f" {r['policy_us_per_decision']:.1f} us.")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--source", type=Path, help="the C file to compile (default: zstd.c, fetched from PyPI)"
    )
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    versions = [
        v for v in (22, 19) if shutil.which(f"clang-{v}") and shutil.which(f"llvm-config-{v}")
    ]
    if not versions:
        raise SystemExit(
            "expected clang-22 and llvm-22-dev, or 19, found neither: apt-get install clang-22 llvm-22-dev"
        )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = options.source or fetch_zstd(folder)
        results = [measure(version, source, folder, options.rounds) for version in versions]
    for result in results:
        report(result)
    if options.json:
        machine = {
            "processor": platform.processor() or platform.machine(),
            "cpus": len(os.sched_getaffinity(0)),
        }
        options.json.write_text(
            json.dumps({"machine": machine, "rounds": options.rounds, "results": results}, indent=2)
        )


if __name__ == "__main__":
    main()
