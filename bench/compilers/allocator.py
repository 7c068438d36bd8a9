"""What the allocator of examples/regalloc makes of two programs, by policy.

    python bench allocator [RESULTS] [--json FILE]

RESULTS has what examples/regalloc/run.py learned: of its seeds, the one that was best in training counts
here. Each policy compiles Lua and zstd with clang-22 -O2. Lua runs its own test suite, and a
script in callgrind; zstd compresses and reads back, which callgrind counts too, and its output is
compared with greedy's. Needs valgrind, and what `deploy` needs. Nothing here depends on time.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import shmbridge
from bench.compilers.plugins import EXAMPLES, build_plugin, text_bytes
from bench.pages.results_page import report
from bench.program import machine, options
from bench.sources import fetch_source

sys.path.append(str(EXAMPLES / "regalloc"))
import policy  # noqa: E402

SCRIPT = """
local function fib(n) return n < 2 and n or fib(n - 1) + fib(n - 2) end
local t, s = {}, {}
for i = 1, 20000 do t[i] = i * 7919 % 10007 end
table.sort(t)
for i = 1, 2000 do s[i] = ("%d:%s"):format(i, ("x"):rep(i % 7)) end
local sum = 0
for digits in table.concat(s, ","):gmatch("%d+") do sum = sum + tonumber(digits) end
print(fib(20), t[1], t[20000], sum)
"""
ROUND_TRIP = """
#include "zstd.h"
#include <stdio.h>
#include <string.h>
static char from[200000], packed[300000], back[200000];
int main(void) {
    unsigned x = 1, hash = 0;
    for (size_t i = 0; i < sizeof from; i++) x = x * 69069 + 1, from[i] = "shmbridge"[(x >> 24) % 9];
    for (int level = -1; level <= 11; level += 4) {
        size_t n = ZSTD_compress(packed, sizeof packed, from, sizeof from, level);
        for (size_t i = 0; i < n; i++) hash = hash * 33 + (unsigned char)packed[i];
        if (ZSTD_decompress(back, sizeof back, packed, n) != sizeof from) return 1;
        if (memcmp(from, back, sizeof from)) return 2;
        printf("%d %zu %u\\n", level, n, hash);
    }
}
"""
COUNTS = ("Questions", "Spills", "Splits")


def any_legal(request: Any) -> int:
    """A random answer, which depends on the request alone."""
    mask = np.flatnonzero(request["action_mask"])
    return int(np.random.default_rng(zlib.crc32(request["range"])).choice(mask))


def policies(results: Path) -> dict[str, Callable[[Any], int] | None]:
    learnt = [row for row in json.loads(results.read_text())["rows"] if "weights" in row]
    best = np.array(min(learnt, key=lambda row: row["train"])["weights"])
    return {
        "greedy": None,
        "basic": None,
        "learned": lambda request: policy.one(request, best),
        "textbook": policy.start,
        "random": any_legal,
    }


def instructions(*words: object) -> int:
    """Executed, by callgrind."""
    valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    done = subprocess.run([*valgrind, *map(str, words)], check=True, capture_output=True, text=True)
    return int(re.findall(r"Collected : (\d+)", done.stderr)[0])


def build(sources: list[Path], flags: list[str], to: Path) -> dict[str, int]:
    """The program of C files, the last of which is not counted, by the plug-in at $SHMBRIDGE_URL."""
    counts = dict.fromkeys((*COUNTS, "text"), 0)
    for source in sources:
        remarks, made = to.with_suffix(".yaml"), to.with_name(f"{to.name}-{source.stem}.o")
        record = ["-fsave-optimization-record", f"-foptimization-record-file={remarks}"]
        clang = ["clang-22", "-O2", "-w", "-DLUA_USE_POSIX", "-c"]
        subprocess.run([*clang, *flags, *record, source, "-o", made], check=True)
        if source is sources[0]:
            said = remarks.read_text()
            for name in COUNTS:
                counts[name] = sum(map(int, re.findall(rf"\b{name}: +'(\d+)'", said)))
            counts["text"] = text_bytes(22, made)
    objects = [to.with_name(f"{to.name}-{source.stem}.o") for source in sources]
    subprocess.run(["clang-22", *objects, "-lm", "-o", to], check=True)
    return counts


def lua(folder: Path, flags: list[str], to: Path) -> dict[str, Any]:
    source = fetch_source(folder, "lua")
    found: dict[str, Any] = build([source], flags, to)
    words = [str(to), "-e", "_U=true", "all.lua"]
    tests = source.parent / "testes"
    said = subprocess.run(words, cwd=tests, capture_output=True, text=True).stdout
    script = folder / "script.lua"
    script.write_text(SCRIPT)
    return found | {"passed": "final OK !!!" in said, "instructions": instructions(to, script)}


def zstd(folder: Path, flags: list[str], to: Path) -> dict[str, Any]:
    main = folder / "main.c"
    main.write_text(ROUND_TRIP)
    source = fetch_source(folder, "zstd")
    found: dict[str, Any] = build([source, main], [*flags, f"-I{source.parent}"], to)
    said = subprocess.run([to], capture_output=True, text=True)
    greedy = folder / "zstd.txt"
    if not greedy.exists():
        greedy.write_text(said.stdout)
    right = said.returncode == 0 and said.stdout == greedy.read_text()
    return found | {"passed": right, "instructions": instructions(to)}


def main() -> None:
    parser = options(__doc__)
    results = EXAMPLES / "regalloc/results/results.json"
    parser.add_argument("results", type=Path, nargs="?", default=results)
    given = parser.parse_args()
    found: dict[str, Any] = {"machine": machine(), "kernels": json.loads(given.results.read_text())}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plugin = f"-fpass-plugin={build_plugin(22, folder / 'build', EXAMPLES / 'regalloc')}"
        for allocator, model in policies(given.results).items():
            flags = [plugin] if allocator != "greedy" else []
            os.environ["REGALLOC_WITHOUT_MODEL"] = allocator
            with shmbridge.Host(f"allocator-{os.getpid()}") as host, host.start(model or any_legal):
                if model:
                    os.environ["SHMBRIDGE_URL"] = host.url
                for program, make in (("Lua", lua), ("zstd", zstd)):
                    its = make(folder, flags, folder / f"{allocator}-{program}")
                    found.setdefault("programs", {}).setdefault(program, {})[allocator] = its
                    print(program, allocator, its, flush=True)
    report("regalloc", found, given.json)


if __name__ == "__main__":
    main()
