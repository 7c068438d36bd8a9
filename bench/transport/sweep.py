"""float32[500], [1000], … [50 000] through every runner and SerDes.

python bench sweep [--quick] [--json FILE]

A C or Python compiler, or a pass of mlir-opt-22, writes every element of one tensor; the model is a
dense layer and a threshold. The ways alternate, length by length; each round has new processes. Needs
what run.py needs, and `pip install 'shmbridge[bench]'`, for MLIR also what examples/mlir needs; rows
with missing requirements are skipped.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.builds import build
from bench.pages.results_page import report
from bench.program import ROOT, SHMBRIDGE, machine, options, python
from bench.transport import sweep_models
from bench.transport.pairs import Pair, Place

HERE = Path(__file__).absolute().parent
STEP, LONGEST = 500, 50_000  # floats
ROUNDS, SECONDS = 5, 0.02  # of a block


@dataclass(frozen=True)
class Way:
    """How a question gets to the model."""

    name: str
    url: str  # {name}: a bridge's, {path}: of pipes, {model}: a file for each length, without a suffix
    far: str | None = (
        "host"  # sweep_host.py's argument; None: the model is in the compiler's process
    )
    near: str = "C"  # the compiler: bench/transport/runner.c, alone or in "MLIR", or "Python"


WAYS = (
    Way("shm", "shm://{name}"),
    Way("aot", "aot://{model}.so", None),
    Way("onnx", "onnx://{model}.onnx", None),
    Way("tflite", "tflite://{model}.tflite", None),
    Way("python in process", f"python://sweep_models:answer?path={HERE}", None),
    Way("pipe, flatbuffers", "pipe://{path}?serdes=flatbuffers"),
    Way("pipe, bitstream", "pipe://{path}?serdes=bitstream"),
    Way("pipe, json", "pipe://{path}?serdes=json"),
    Way("relay to grpc", "shm://{name}", "relay"),
    Way("grpc in C's process", "grpc://127.0.0.1:0"),
    Way("grpc, Python runner", "grpc://127.0.0.1:0", near="Python"),
    Way("shm, mlir-opt", "shm://{name}", near="MLIR"),
    Way("onnx, mlir-opt", "onnx://{model}.onnx", None, near="MLIR"),
    Way("pipe, bitstream, mlir-opt", "pipe://{path}?serdes=bitstream", near="MLIR"),
    Way("shm, Python runner", "shm://{name}", near="Python"),
    Way("pipe, protobuf, Python runner", "pipe://{path}?serdes=protobuf", near="Python"),
)


@dataclass
class Sweep:
    """Median ns of a round trip: rounds[round][i] for the i-th length."""

    way: Way
    rounds: list[list[float]] = field(default_factory=list)

    @property
    def medians(self) -> list[float]:
        """Of each length, in ns."""
        return [statistics.median(at) for at in zip(*self.rounds, strict=True)]

    def ratio(self, other: Sweep) -> tuple[float, float, float]:
        """Of the sums of all lengths' medians, which a disturbed block does not move; and the least
        and the greatest of one round's sums."""
        ratios = [sum(mine) / sum(its) for mine, its in zip(self.rounds, other.rounds, strict=True)]
        return sum(self.medians) / sum(other.medians), min(ratios), max(ratios)


def start(way: Way, place: Place, length: int, stack: ExitStack) -> Pair:
    """Its processes, after a question. RuntimeError: one of them did not start, and printed the
    reason."""
    path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sweep-"))) / "pipe"
    name = f"sweep-{os.getpid()}-{WAYS.index(way)}"
    url = way.url.format(name=name, path=path, model=place.build / "%zu")
    how = [way.far or ""][way.far == "host" :]
    far = python("sweep_host", place.far, url, *how)
    near = place.c_runner("adaptive") if way.near == "C" else place.python_runner("adaptive")
    if way.near == "MLIR":
        ours = ["SWEEP_URL={NAME}", f"SWEEP_CORE={place.near}", "mlir-opt-22", "/dev/null"]
        loads = f"--load-pass-plugin={place.build / 'sweep_mlir.so'}"
        near = ["env", *ours, loads, "--pass-pipeline=any(sweep)"]
    if not way.far:
        near = [word.replace("{NAME}", url) for word in near]
    pair = stack.enter_context(Pair(way.name, far if way.far else None, near))
    pair.block(4 * length, 0)
    return pair


def prepare(directory: Path, lengths: Sequence[int]) -> None:
    """Writes the models to files, and builds the pass; without a file its ways are skipped."""
    build(directory)
    # Where C programs look for the packages' libraries.
    os.environ.setdefault("VIRTUAL_ENV", sys.prefix)
    os.environ["SHMBRIDGE_PYTHON"] = str(directory / "embedded-python")
    subprocess.run([SHMBRIDGE, "embed", "-o", os.environ["SHMBRIDGE_PYTHON"]], check=False)
    for n in lengths:
        onnx, tflite = directory / f"{n}.onnx", directory / f"{n}.tflite"
        sweep_models.write_onnx(onnx, n)
        sweep_models.write_tflite(tflite, n)
        subprocess.run([SHMBRIDGE, "compile", onnx, "-o", onnx.with_suffix(".so")], check=True)
    try:
        build_pass(directory)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"left out: mlir-opt: {error}", file=sys.stderr)


def build_pass(directory: Path) -> None:
    """sweep_mlir.so"""
    part = directory / "runner.o"
    shared = ["-O2", "-fPIC", "-D_GNU_SOURCE", f"-I{ROOT / 'cdef/include'}"]
    subprocess.run(
        ["cc", *shared, "-Dmain=runner", "-c", HERE / "runner.c", "-o", part], check=True
    )
    llvm = subprocess.check_output(
        ["llvm-config-22", "--includedir", "--libdir"], text=True
    ).split()
    flags = ["-std=c++17", "-fno-rtti", "-shared", "-isystem", llvm[0], f"-L{llvm[1]}"]
    files = [HERE / "sweep_mlir.cpp", part, directory / "libshmbridge.a"]
    to = ["-lMLIR", "-lLLVM-22", "-o", directory / "sweep_mlir.so"]
    subprocess.run(["c++", *shared, *flags, *files, *to], check=True)


def measure(
    ways: Sequence[Way], place: Place, lengths: Sequence[int], rounds: int, seconds: float
) -> list[Sweep]:
    """Alternates the ways, length by length; restarts everything for each round."""
    sweeps = [Sweep(way) for way in ways]
    for i in range(rounds):
        with ExitStack() as stack:
            pairs = []
            for sweep in list(sweeps):
                try:
                    pairs.append(start(sweep.way, place, lengths[0], stack))
                except RuntimeError as error:
                    if i or sweep.way is WAYS[0]:
                        raise
                    sweeps.remove(sweep)
                    print(f"left out: {error}", file=sys.stderr)
            by_length = [[pair.block(4 * n, seconds)[0] for pair in pairs] for n in lengths]
        for sweep, its in zip(sweeps, zip(*by_length, strict=True), strict=True):
            sweep.rounds.append(list(its))
    return sweeps


def figures(sweeps: Sequence[Sweep]) -> list[dict[str, Any]]:
    """The JSON of each way."""
    results = []
    for sweep in sweeps:
        ratio, *extremes = sweep.ratio(sweeps[0])
        ns = [round(value, 1) for value in sweep.medians]
        row = {"way": sweep.way.name, "ns": ns, "sum_us": round(sum(sweep.medians) / 1e3, 1)}
        row |= {"ratio_to_shm": round(ratio, 2), "ratio_range": [round(r, 2) for r in extremes]}
        results.append(row)
    return results


def main() -> int:
    parser = options(__doc__, ROUNDS)
    parser.add_argument("--quick", action="store_true", help="a smoke test of a few lengths")
    parser.add_argument("--step", type=int, default=STEP, help="floats between two lengths")
    given = parser.parse_args()
    # also continues and ends stopped processes
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        print("two cores are needed, but this process may use only one", file=sys.stderr)
        return 1
    lengths = [500, 5_000, 50_000] if given.quick else range(given.step, LONGEST + 1, given.step)
    with tempfile.TemporaryDirectory() as directory:
        prepare(Path(directory), lengths)
        place = Place(Path(directory), cores[0], cores[1])
        some = (1, SECONDS / 10) if given.quick else (given.rounds, SECONDS)
        sweeps = measure(WAYS, place, lengths, *some)
    whole = {"machine": machine(), "lengths": [*lengths], "ways": figures(sweeps)}
    report("sweep", whole, given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
