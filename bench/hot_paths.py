"""A Python host's cost, by the type of advice: python bench/hot_paths.py [--quick] [--against DIR]
[--only ROWS].

For each row the CPU time of the host for a request and the rate, as ratios to the row of a Python
float of the same run; rows alternate. --against DIR: alternates the package in DIR (pip install
--target DIR) with the installed one.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pairs import HERE, Pair

REPLIES = (
    "float",
    "int",
    "bool",
    "np.float32",
    "np.int64",
    "np.bool_",
    "0-d",
    "float32[1]",
    "float32[16]",
    "dict",
    "torch",
)
RUNNERS = (1, 8, 32)


# ---- The host: hot_paths.py host CORE RUNNERS serve|batches ----


def advice_of(kind: str) -> Any:
    import numpy as np

    if kind == "torch":
        import torch

        return torch.tensor(1.0)
    return {
        "float": 1.0,
        "int": 1,
        "bool": True,
        "np.float32": np.float32(1),
        "np.int64": np.int64(1),
        "np.bool_": np.bool_(True),
        "0-d": np.array(1, np.float32),
        "float32[1]": np.ones(1, np.float32),
        "float32[16]": np.ones(16, np.float32),
        "dict": {"a": 1.0, "b": np.float32(2)},
    }[kind]


class Answers:
    """Answers as each line of standard input requests: a kind of REPLIES, "columns" (of a batch),
    "text", or "busy", which starts a thread that computes. Prints the process's CPU time after each
    line."""

    def __init__(self) -> None:
        self.model: Callable[[Any], Any] = lambda _: 1.0
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            self._choose(line.strip())
            print(time.process_time_ns(), flush=True)

    def _choose(self, kind: str) -> None:
        import numpy as np

        if kind == "busy":
            threading.Thread(target=compute, daemon=True).start()
        elif kind == "columns":

            def columns(batch: Any) -> Any:
                for name in batch:
                    batch[name]
                return np.ones(len(batch), np.int64)

            self.model = columns
        elif kind == "read":
            self.model = lambda request: 1.0 if [request[name] for name in request] else 0.0
        elif kind == "text":
            self.model = lambda request: len(request["text"])
        elif kind:
            advice = advice_of(kind)
            self.model = lambda _: advice


def compute() -> None:
    while True:
        sum(range(1000))


def serve(core: int, runners: int, how: str) -> None:
    import shmbridge

    answers = Answers()
    room = 12 << 20 if runners == 1 else 1 << 16
    with shmbridge.Host(f"bench-{os.getpid()}", channels=runners, request_bytes=room) as host:
        signal.signal(signal.SIGTERM, lambda *_: host.close())
        os.sched_setaffinity(0, {core})  # only now: a process with one CPU does not spin
        print(host.name, flush=True)
        host.serve(
            lambda question: answers.model(question), max_batch=64 if how == "batches" else 1
        )


# ---- What is measured ----


class Hosts(Pair):
    """A host and its askers."""

    def __init__(self, build: Path, cores: list[int], runners: int, how: str, path: str) -> None:
        program = [
            sys.executable,
            str(HERE / "hot_paths.py"),
            "host",
            str(cores[1]),
            str(runners),
            how,
        ]
        environment = ["env", f"PYTHONPATH={path}"] if path else []
        near = [str(build / "askers"), "{NAME}", str(cores[0]), str(runners)]
        super().__init__(how, [*environment, *program], near, far_stdin=True)

    def cpu(self, kind: str) -> int:
        assert self.far and self.far.stdin
        print(kind, file=self.far.stdin, flush=True)
        return int(self._line(self.far))

    def requests(self, kind: str, shape: str, seconds: float) -> tuple[float, float]:
        """The host's CPU time for a request, and how long one took, in ns."""
        assert self.near and self.near.stdin
        self.signal(signal.SIGCONT)
        self.cpu(kind)
        for share in (0.2, 1):  # warms up, measures
            before = self.cpu("")
            print(shape, round(seconds * share * 1e9), file=self.near.stdin, flush=True)
            count, length = map(int, self._line(self.near).split())
            used = self.cpu("") - before
        self.signal(signal.SIGSTOP)
        return used / count, length / count


class Measured:
    """The blocks of one row."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.blocks: list[tuple[float, float]] = []

    def median(self, column: int) -> float:
        return statistics.median(block[column] for block in self.blocks)


def rows() -> Iterator[tuple[str, int, str, str, str]]:
    """Name, runners, how, advice, shape."""
    for runners in RUNNERS:
        for kind in REPLIES:
            yield f"serve, {kind}", runners, "serve", kind, "one"
        yield "serve, one feature", runners, "serve", "read", "one"
        yield "batches, one feature", runners, "batches", "columns", "one"
        yield "serve, 38 features", runners, "serve", "read", "scalars"
        yield "batches, 38 features", runners, "batches", "columns", "scalars"
    yield "serve, text of any length", 1, "serve", "text", "text"
    yield "serve, 10 MB", 1, "serve", "float", "large"
    yield "serve, 10 MB, busy thread", 1, "busy", "float", "large"


def available(kind: str) -> bool:
    try:
        advice_of(kind)
    except (ImportError, KeyError):
        return kind in ("columns", "read", "text")
    return True


def measure(
    build: Path, only: str, paths: list[str], seconds: float, rounds: int
) -> list[dict[str, Any]]:
    cores = sorted(os.sched_getaffinity(0))
    table: dict[tuple[str, int, str], Measured] = {}
    chosen = [
        row
        for row in rows()
        if available(row[3]) and (only in f"{row[0]} {row[1]}" or row[0] == "serve, float")
    ]
    for runners in RUNNERS:
        with ExitStack() as stack:
            hosts: dict[tuple[str, str], Hosts] = {}
            for _ in range(rounds):
                for name, count, how, kind, shape in chosen:
                    if count != runners:
                        continue
                    for path in paths:
                        host = hosts.get((how, path))
                        if host is None:
                            host = stack.enter_context(Hosts(build, cores, runners, how, path))
                            if how == "busy":
                                host.signal(signal.SIGCONT)
                                host.cpu("busy")
                            hosts[how, path] = host
                        row = table.setdefault((name, count, path), Measured(name))
                        row.blocks.append(host.requests(kind, shape, seconds))
    return [
        {
            "row": name,
            "runners": count,
            "package": path or "installed",
            "cpu_ns": row.median(0),
            "ns": row.median(1),
            "blocks": row.blocks,
        }
        for (name, count, path), row in table.items()
    ]


def show(results: list[dict[str, Any]]) -> None:
    base = {
        (r["runners"], r["package"]): r["cpu_ns"] for r in results if r["row"] == "serve, float"
    }
    print(
        f"{'':28}{'runners':>8}{'package':>14}{'CPU us':>9}{'x float':>9}{'quartiles':>15}{'a second':>11}"
    )
    for r in results:
        of = base[r["runners"], r["package"]]
        cpu = sorted(block[0] / of for block in r["blocks"])
        low, high = cpu[len(cpu) // 4], cpu[-1 - len(cpu) // 4]
        package = Path(r["package"]).name
        print(
            f"{r['row']:28}{r['runners']:>8}{package:>14}{r['cpu_ns'] / 1e3:>9.2f}{r['cpu_ns'] / of:>9.2f}"
            f"{f'{low:.2f} - {high:.2f}':>15}{1e9 / r['ns']:>11.0f}"
        )


def main() -> None:
    import program
    import run

    parser = program.options(__doc__, rounds=5)
    parser.add_argument("--quick", action="store_true", help="no figures to quote")
    parser.add_argument("--only", default="", help="rows whose name or runners hold this text")
    parser.add_argument("--against", default="", help="a folder with another shmbridge")
    parser.add_argument("--seconds", type=float, default=0.15, help="of a block")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        run.build(Path(directory), [["askers"]])
        paths = ["", *([options.against] if options.against else [])]
        seconds, rounds = (0.02, 1) if options.quick else (options.seconds, options.rounds)
        results = measure(Path(directory), options.only, paths, seconds, rounds)
    show(results)
    program.write(options.json, results)


if __name__ == "__main__":
    if sys.argv[1:2] == ["host"]:
        serve(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    else:
        main()
