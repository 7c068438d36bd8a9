"""The cost of a question in examples/unroll, a pass that asks about all loops of a function at once:
python bench unroll [--rounds N] [--json FILE].

opt-22 -O1 compiles functions of eight loops, and -time-passes says how long the pass took. "one by
one" is the same pass over a URL with retries, which answers each question while it is sent."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from program import ROOT, SHMBRIDGE, compiled, options, quartiles, started, write
from run import build

sys.path.insert(0, str(ROOT / "examples"))
import shared

EXAMPLE = ROOT / "examples" / "unroll"
FUNCTIONS, LOOPS = 400, 8


def program() -> str:
    """Functions of eight loops that differ in length."""
    loop = "for (int i = 0; i < n; i++) { %s }"
    bodies = [" ".join(f"a[i + {k}] = b[i] * {k};" for k in range(1, 2 + j)) for j in range(LOOPS)]
    return "\n".join(
        f"void f{i}(int *restrict a, int *restrict b, int n) {{"
        + " ".join(loop % body for body in bodies)
        + " }"
        for i in range(FUNCTIONS)
    )


def bitcode(folder: Path) -> Path:
    """The functions, before any optimisation."""
    (folder / "loops.c").write_text(program())
    clang = ["clang-22", "-O1", "-Xclang", "-disable-llvm-passes", "-emit-llvm", "-c", "loops.c"]
    subprocess.run([*clang, "-o", "loops.bc"], cwd=folder, check=True)
    return folder / "loops.bc"


def microseconds(plugin: Path, module: Path, url: str) -> float:
    """Of the pass, for each loop."""
    words = ["opt-22", "-load-pass-plugin", plugin, "-passes=default<O1>", "-time-passes"]
    done = subprocess.run(
        [*words, "-disable-output", module],
        env={**os.environ, "SHMBRIDGE_URL": url},
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = re.search(r"([\d.]+) \(\s*[\d.]+%\)\s+\S*AdvicePass", done.stderr)
    assert found and "loops are unrolled as" not in done.stderr, done.stderr
    return float(found[1]) / (FUNCTIONS * LOOPS) * 1e6


def main() -> None:
    args = options(__doc__, rounds=15).parse_args()
    name = f"unroll-{os.getpid()}"
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        folder = Path(temporary)
        shared.build(EXAMPLE, folder, shared.llvm())
        plugin, module = folder / "shmbridge-unroll.so", bitcode(folder)
        source = Path(__file__).with_name("unroll_model.c")
        library = compiled(source, folder / "model.so", "-shared", "-fPIC")
        serve = [SHMBRIDGE, "serve", name, "--python", f"{EXAMPLE / 'policy.py'}:advise"]
        stack.enter_context(started(*serve))
        core = folder / "core"
        core.mkdir()
        build(core, [["unroll_host"]])
        _, in_c = stack.enter_context(started(core / "unroll_host"))
        urls = {
            "aot": f"aot://{library}",
            "shm, C, one by one": f"shm://{in_c}?retries=1",
            "shm, C, in flight": f"shm://{in_c}",
            "shm, Python, one by one": f"shm://{name}?retries=1",
            "shm, Python, in flight": f"shm://{name}",
        }
        found: dict[str, list[float]] = {way: [] for way in urls}
        for _ in range(args.rounds):
            for way, url in urls.items():
                found[way].append(microseconds(plugin, module, url))
    for way, each in found.items():
        over = [a - b for a, b in zip(each, found["aot"], strict=True)]
        low, middle, high = quartiles(over)
        spread = f"{middle:.2f} over aot ({low:.2f} to {high:.2f})"
        print(f"{way:26}{statistics.median(each):8.2f} us a loop, {spread}")
    write(args.json, found)


if __name__ == "__main__":
    main()
