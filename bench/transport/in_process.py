"""What a runner in the compiler's process adds to the model's time, and how threads share one
session.

    python bench in_process [--quick] [--json FILE]

onnx    onnx:// compared with ONNX Runtime's C API, used as efficiently as possible (onnx_direct.c)
aot     aot:// compared with the C function that `shmbridge compile` wrote, built with the same
        flags (aot_direct.c)

Blocks alternate in one process: direct, a runner that is filled for each question, a runner with
bound features. Then the same with 1, 2, 4 and 8 threads, each with its own runner, in one session:
evaluations per second over those of one thread. Needs a C compiler, CMake, and `pip install
'.[bench]'`.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from program import onnx_models, options, report
from run import build, machine

WAYS = ("direct", "runner", "bound")
THREADS = (1, 2, 4, 8)
ROUNDS, MILLISECONDS, SWEEPS = 200, 8, 5


@dataclass
class Workload:
    """A model and what it is asked: COUNT inputs of ROWS x ELEMENTS, as in_process.c takes it."""

    name: str
    inputs: str
    file: Path


def workloads(directory: Path) -> Iterator[Workload]:
    """A small perceptron; one the size of LLVM's inlining policy, with its 38 scalars."""
    models = onnx_models()
    node, to = models.node, models.T
    random = np.random.default_rng(0)

    def layers(x: str, sizes: list[int], constants: dict[str, Any]) -> list[Any]:
        nodes = []
        for i, size in enumerate(zip(sizes[:-1], sizes[1:], strict=True)):
            constants[f"w{i}"] = random.normal(size=size).astype(np.float32)
            constants[f"b{i}"] = random.normal(size=size[1]).astype(np.float32)
            nodes.append(node("Gemm", f"{x} w{i} b{i}", f"g{i}"))
            x = f"g{i}"
            if i < len(sizes) - 2:
                nodes.append(node("Relu", x, f"r{i}"))
                x = f"r{i}"
        nodes[-1].output[0] = "score"
        return nodes

    constants: dict[str, Any] = {}
    nodes = layers("x", [300, 64, 1], constants)
    inputs, file = [("x", to.FLOAT, ["batch", 300])], directory / "perceptron.onnx"
    models.save(file, nodes, inputs, [("score", to.FLOAT, ["batch", 1])], constants)
    yield Workload("perceptron", "f32:1x1x300", file)

    constants = {"axis": np.array([0]), "shape": np.array([1]), "nil": np.float32(0)}
    names = [f"x{i}" for i in range(38)]
    nodes = [
        node("Concat", " ".join(names), "all", axis=0),
        node("Cast", "all", "numbers", to=to.FLOAT),
        node("Unsqueeze", "numbers axis", "row"),
        *layers("row", [38, 64, 64, 20, 1], constants),
        node("Greater", "score nil", "above"),
        node("Cast", "above", "number", to=to.INT64),
        node("Reshape", "number shape", "advice"),
    ]
    inputs, file = [(name, to.INT64, [1]) for name in names], directory / "inliner.onnx"
    models.save(file, nodes, inputs, [("advice", to.INT64, [1])], constants)
    yield Workload("inliner", "i64:38x0x1", file)


def rounds(
    program: Path, w: Workload, url: str, threads: int, number: int, arguments: list[str]
) -> list[list[float]]:
    """ns of an evaluation, [round][way]."""
    place = ["taskset", "-c", str(min(os.sched_getaffinity(0)))] if threads == 1 else []
    command = [*place, program, w.inputs, url, threads, number, MILLISECONDS, *arguments]
    done = subprocess.run(
        [str(word) for word in command], stdout=subprocess.PIPE, text=True, check=True
    )
    return [[float(word) for word in line.split()] for line in done.stdout.splitlines()]


def costs(
    program: Path, w: Workload, url: str, arguments: list[str], number: int
) -> dict[str, Any]:
    """One thread: the time of each way, and its ratio to the direct call in the same round."""
    found = rounds(program, w, url, 1, number, arguments)
    ns = {way: round(statistics.median(line[i] for line in found)) for i, way in enumerate(WAYS)}
    row: dict[str, Any] = {"model": w.name, "ns": ns}
    for i, way in enumerate(WAYS[1:], 1):
        quartiles = statistics.quantiles([line[i] / line[0] for line in found], n=4)
        row[way] = {
            "ratio": round(quartiles[1], 3),
            "quartiles": [round(q, 3) for q in quartiles[::2]],
        }
        print(
            f"  {w.name:10} {way:6} {ns[way]:7} ns   {quartiles[1]:.3f} x direct ({quartiles[0]:.3f} to {quartiles[2]:.3f})",
            flush=True,
        )
    return row


def scaling(
    program: Path, w: Workload, url: str, arguments: list[str], sweeps: int, number: int
) -> dict[str, Any]:
    """Evaluations per second of all threads, over those of one thread in the same sweep."""
    ratios: dict[int, list[list[float]]] = {threads: [] for threads in THREADS}
    for _ in range(sweeps):
        found = {
            n: [
                statistics.median(way)
                for way in zip(*rounds(program, w, url, n, number, arguments), strict=True)
            ]
            for n in THREADS
        }
        for n in THREADS:
            ratios[n].append([one / many for one, many in zip(found[1], found[n], strict=True)])
    row = {
        str(n): {
            way: round(statistics.median(r[i] for r in ratios[n]), 2) for i, way in enumerate(WAYS)
        }
        for n in THREADS
    }
    return {"model": w.name, "throughput": row}


def measure(
    name: str, program: Path, cases: list[tuple[Workload, str, list[str]]], quick: bool
) -> dict[str, Any]:
    """A kind of runner: cases are (workload, URL, arguments of its direct_load)."""
    number, sweeps = (5, 1) if quick else (ROUNDS, SWEEPS)
    print(f"\n== {name}: over the direct call", flush=True)
    one = [costs(program, *case, number) for case in cases]
    return {
        "costs": one,
        "threads": [scaling(program, *case, sweeps, max(3, number // 10)) for case in cases],
    }


def onnx(directory: Path, quick: bool) -> dict[str, Any]:
    spec = find_spec("onnxruntime")
    if spec is None or spec.origin is None or find_spec("onnx") is None:
        return {"skipped": "onnx and onnxruntime are not installed"}
    library = str(next(Path(spec.origin).parent.glob("capi/libonnxruntime.so.*")))
    build(directory, [["in_process", "onnx_direct"]])
    cases = [
        (w, f"onnx://{w.file}?library={library}", [library, str(w.file)])
        for w in workloads(directory)
    ]
    return measure("onnx", directory / "in_process", cases, quick)


def aot(directory: Path, quick: bool) -> dict[str, Any]:
    if find_spec("emx_onnx_cgen") is None or find_spec("onnx") is None:
        return {"skipped": "onnx and emx-onnx-cgen are not installed"}
    build(directory, [["in_process", "aot_direct"]])
    cases = []
    for w in workloads(directory):
        library, kept = w.file.with_suffix(".so"), directory / w.name
        subprocess.run(
            [
                sys.executable,
                "-m",
                "shmbridge.cli",
                "compile",
                w.file,
                "-o",
                library,
                "--keep",
                kept,
            ],
            check=True,
        )
        # inputs are called "x" or "x0", "x1", …, and a batch is of 1
        number = int(w.inputs.split(":")[1].split("x")[0])
        signature = next(
            line
            for line in (kept / "model.c").read_text().splitlines()
            if line.startswith("void model(")
        )
        words = [
            *["1"] * signature.count("int batch,"),
            *(f"(const void *)in[{i}]" for i in range(number)),
            "out",
        ]
        code = f'#include <stdlib.h>\n#include "model.c"\nvoid call(const void *const *in, void *out) {{ model({", ".join(words)}); }}\n'
        (kept / "call.c").write_text(code)
        flags = ["-O3", "-fPIC", "-shared", "-fno-math-errno", "-w"]
        subprocess.run(["cc", *flags, kept / "call.c", "-o", kept / "call.so", "-lm"], check=True)
        cases.append((w, f"aot://{library}", [str(kept / "call.so")]))
    return measure("aot", directory / "in_process", cases, quick)


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test: no figures to quote")
    given = parser.parse_args()
    results: dict[str, Any] = {"machine": machine()}
    for kind in (onnx, aot):
        with tempfile.TemporaryDirectory() as directory:
            results[kind.__name__] = found = kind(Path(directory), given.quick)
        if "skipped" in found:
            print(f"{kind.__name__}: {found['skipped']}")
    report("threads", results, given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
