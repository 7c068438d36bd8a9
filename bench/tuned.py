"""How much smaller does `shmbridge tune` make programs? python bench/tuned.py --json FILE

Fetches each program, tunes its sources, and lets a random search do the same number of distinct
compilations. Then builds the program twice with the plans, compares the objects, and tests the
program. Results of compilations are kept in --work, so that the command can be interrupted. With --json, it copies the
plans to plans/ in the folder of FILE.

Fixed before the first run: the programs, their budgets, the score (bytes of .text of all objects,
clang-22 -Oz -fPIC), and what counts as success: at most -2 % in the mean over the programs, every
test passes, and both builds have the same bytes.

The first search, which tried one decision per compilation, missed that: -0.43 % in the mean of six
programs (commit fc6f58a). The second, which tries many at once, had -1.01 % (851bae6). The third
reverses all calls of a function, and tries LLVM's closest decisions first. It was developed with
Lua 5.4, cmark and zstd, which are none of these programs. Each has the same programs, budgets, score
and target, and runs once.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from program import options, report
from run import machine
from sources import fetch

from shmbridge._llvm.plan import ENDING, read
from shmbridge._tune.clang import Compiler, measure_of, modules_of
from shmbridge._tune.search import Search, Steps, flip_rounds
from shmbridge._tune.tuning import Tuning
from shmbridge.training.scores import text_size

HERE = Path(__file__).absolute().parent
TESTS = HERE / "tuned_tests.py"
WORK = Path.home() / ".cache" / "shmbridge" / "tuned"
CLANG = "clang-22"
FLAGS = ["-Oz", "-fPIC", "-w"]
TARGET = -0.02


@dataclass(frozen=True)
class Program:
    """The sdist, the folder in it to compile in, its sources, and how many compilations each search
    may use."""

    package: str
    folder: str
    sources: str
    budget: int
    flags: Sequence[str] = ()
    link: Sequence[str] = ()


PROGRAMS = {
    "zopfli": Program("zopfli==0.4.3", "zopfli/src/zopfli", "*.c", 300),
    "lz4": Program("lz4==4.4.5", "lz4libs", "*.c", 200),
    "cjson": Program("awscrt==0.38.1", "crt/aws-c-common/source/external", "cJSON.c", 300),
    "picosat": Program("pycosat==0.6.6", ".", "picosat.c", 150),
    "brotli": Program("brotli==1.2.1", "c", "[cde]*/*.c", 300, ["-I", "include"]),
    "lodepng": Program(
        "zopfli==0.4.3", "zopfli/src/zopflipng/lodepng", "lodepng.cpp", 150, ["-x", "c"]
    ),
    "quickjs": Program(
        "quickjs==1.19.4",
        "upstream-quickjs",
        "*.c",
        60,
        ["-D_GNU_SOURCE", "-DCONFIG_BIGNUM", '-DCONFIG_VERSION="1"'],
    ),
    "sqlite": Program(
        "sqlean.py==3.50.4.5",
        "sqlite",
        "sqlite3.c",
        30,
        link=["-Wl,--defsym=sqlite3_sqlean_init=0"],  # of sqlean's own sources
    ),
}


def random_sets(search: Search, seed: int) -> Steps:
    """Reverses decisions at random: each with one probability per compilation, from a half down to
    one decision in all."""
    start = (yield [0])[0]
    sites = search.results.sites_of(start.asked)
    draw = random.Random(f"{seed} {search.module.name}")
    for _ in range(1000 if sites else 0):
        share = 0.5 ** draw.uniform(1, len(sites).bit_length())
        yield [search.results.bits(site for site in sites if draw.random() < share)]


class Measured:
    """One program in a folder of its own: what is measured of it, stored in that folder."""

    def __init__(self, name: str, work: Path) -> None:
        self.program, self.name, self.work = PROGRAMS[name], name, work / name
        self._file = self.work / "measured.json"
        self.found = json.loads(self._file.read_text()) if self._file.exists() else {}

    def run(self) -> None:
        """Measures what the folder does not have yet."""
        self.work.mkdir(parents=True, exist_ok=True)
        if "identical" in self.found:
            return
        folder = fetch(self.work, self.program.package) / self.program.folder
        os.chdir(folder)  # as its build would
        words = [CLANG, *FLAGS, *self.program.flags]
        words += [str(path) for path in sorted(Path().glob(self.program.sources))]
        self._tune("search", words, self.program.budget, flip_rounds)
        self._tune("random", words, self.found["search"]["compilations"], random_sets)
        self._build(words)
        self._store()

    def _tune(
        self, method: str, words: list[str], budget: int, steps: Callable[..., Steps]
    ) -> None:
        found = self.found.setdefault(method, {"cpu": 0.0})
        if "after" in found:
            return
        tuning = Tuning(
            Compiler(CLANG),
            modules_of(words, None),
            measure_of("text"),
            self.work / "results",
            jobs=2,
            compilations=budget,
            steps=steps,
        )
        try:
            with tuning:
                tuning.run()
                for plan in tuning.plans().values() if steps is flip_rounds else []:
                    path = self.work / "plans" / f"{plan.source}{ENDING}"
                    path.parent.mkdir(parents=True, exist_ok=True)
                    plan.write(path)
            if tuning.failed:
                raise SystemExit(f"{self.name}: {tuning.failed}")
            found |= {
                "before": tuning.before,
                "after": tuning.after,
                "compilations": tuning.distinct,
                "converged": not tuning.spent,
            }
        finally:
            found["cpu"] += tuning.cpu
            self._store()

    def _build(self, words: Sequence[str]) -> None:
        """Builds twice with the plans, compares, and tests."""
        made = [self._objects(words, again) for again in range(2)]
        contents = [[path.read_bytes() for path in objects] for objects in made]
        size = sum(map(text_size, made[0]))
        library = self.work / f"{self.name}.so"
        link = [CLANG, "-shared", "-o", library, *made[0], *self.program.link, "-lm", "-lpthread"]
        subprocess.run(link, check=True)
        test = subprocess.run([sys.executable, TESTS, self.name, library], check=False)
        self.found |= {
            "identical": contents[0] == contents[1] and size == self.found["search"]["after"],
            "tested": test.returncode == 0,
            "sources": len(made[0]),
            "decisions": sum(
                read(path).questions for path in (self.work / "plans").rglob(f"*{ENDING}")
            ),
        }

    def _objects(self, words: Sequence[str], again: int) -> list[Path]:
        to = self.work / f"build{again}"
        to.mkdir(exist_ok=True)
        run = ["shmbridge", "run", "--strict", "--plan", self.work / "plans", "--"]
        modules = modules_of(words, None)
        objects = [to / f"{number}.o" for number in range(len(modules))]
        for module, made in zip(modules, objects, strict=True):
            compile_it = [CLANG, *module.flags, "-c", module.path, "-o", made]
            subprocess.run([*run, *compile_it], check=True)
        return objects

    def _store(self) -> None:
        self._file.write_text(json.dumps(self.found, indent=1))


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--only", default=",".join(PROGRAMS), help="programs")
    parser.add_argument("--work", type=Path, default=WORK, help="a folder for everything")
    given = parser.parse_args()
    for name in given.only.split(","):
        measured = Measured(name, given.work.absolute())
        measured.run()
        print(name, json.dumps(measured.found), flush=True)
    all_of_them = [Measured(name, given.work.absolute()) for name in PROGRAMS]
    complete = {each.name: each.found for each in all_of_them if "identical" in each.found}
    unfinished = [each.name for each in all_of_them if each.name not in complete]
    result = {"machine": machine(), "target": TARGET, "programs": complete}
    report("tuned", {**result, "unfinished": unfinished}, given.json)
    for name in complete if given.json else []:
        plans = given.json.parent / "plans" / name
        shutil.copytree(given.work / name / "plans", plans, dirs_exist_ok=True)


if __name__ == "__main__":
    main()
