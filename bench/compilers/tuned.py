"""How much smaller does `shmbridge tune` make programs? python bench tuned --json FILE

tuned.toml has the programs. Each is tuned with one compilation for each two functions (--times 3: three
times as many), or with as many as its `most` allows. It is built twice with the files, the objects are
compared, and its test runs. Random attributes get as many compilations. With `run`, a program is also
tuned by the instructions that it executes. Figures are stored in --work after each part, so the command can
be interrupted.

Fixed before the first run: the programs, the budgets, the score (bytes of .text), and the targets: at most
-1.5 % in the mean of those that are not held out, -2 % with three times as many, and a mean of those that
are held out within 0.5 points of that. `most` was set by the time that there was.
"""

import json
import math
import os
import random
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from rich.progress import Progress

from bench.pages.results_page import report
from bench.program import SHMBRIDGE, machine, options
from bench.sources import fetch
from shmbridge._tune import ALWAYS, NEVER, callees
from shmbridge.cli.tune import Options, Source, modules_of
from shmbridge.training.scores import text_size

PROGRAMS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())


def unpacked(work: Path, package: str) -> Path:
    """The folder of an sdist, or of a package of Debian."""
    if "==" in package:
        return fetch(work, package)
    to = work / package
    if not to.exists():
        subprocess.run(["apt-get", "download", package], cwd=work, check=True)
        deb = next(work.glob(f"{package}_*.deb"))
        subprocess.run(["dpkg", "-x", deb, f"{to}.part"], check=True)
        Path(f"{to}.part").rename(to)
    return to


class Measured:
    """A program in a folder of its own: what is measured of it."""

    def __init__(self, name: str, work: Path, times: int) -> None:
        self.its, self.work = PROGRAMS[name], work
        self.files = work / f"files{times}"
        self.stored = work / f"{times}.json"
        self.found = json.loads(self.stored.read_text()) if self.stored.exists() else {}
        work.mkdir(parents=True, exist_ok=True)
        os.chdir(unpacked(work, self.its["package"]) / self.its["folder"])
        os.environ["XDG_CACHE_HOME"] = str(
            work / f"cache{times}"
        )  # so that CPU minutes are of this run
        paths = sorted(
            str(path) for each in self.its["sources"].split() for path in Path().glob(each)
        )
        self.words = [*self.its["compiler"].split(), *paths]
        bar = Progress(disable=True)
        bar.add_task("")
        given = Options(self.files, "text", 2, None, None, "", False, tuple(self.words))
        self.sources = [Source(given, each, str(work), bar) for each in modules_of(given)]
        functions = sum(len(source.before) for source in self.sources)
        budget = times * min(math.ceil(functions / 2), self.its.get("most", math.inf))
        self.found |= {"sources": len(self.sources), "functions": functions, "budget": budget}

    def part(self, name: str) -> None:
        """Measures what is not stored: search, linked, random or run."""
        if name in self.found or (name == "run" and "run" not in self.its):
            return
        self.found[name] = getattr(self, name)()
        self.stored.write_text(json.dumps(self.found))

    def search(self) -> dict[str, object]:
        """The search, two builds, and the test."""
        found = self._tuned(self.files)
        made = [[self.work / f"{again}{at}.o" for at in range(len(self.sources))] for again in "ab"]
        for source, *both in zip(self.sources, *made, strict=True):
            for to in both:
                source.compile(_read(source.file), source.keep)
                Path(source.made).rename(to)
        same = all(a.read_bytes() == b.read_bytes() for a, b in zip(*made, strict=True))
        test = ["bash", "-ec", self.its["test"], sys.executable, *map(str, made[0])]
        return found | {
            "identical": same,
            "tested": not subprocess.run(test, check=False).returncode,
        }

    def _tuned(self, files: Path, *more: str) -> dict[str, float]:
        command = [
            SHMBRIDGE,
            "tune",
            "-j2",
            "--compilations",
            str(self.found["budget"]),
            "-o",
            files,
        ]
        done = subprocess.run(
            [*command, *more, "--", *self.words], check=True, stderr=subprocess.PIPE, text=True
        )
        line = re.search(r"^(\S+) to (\S+) .* with (\S+) compilations, (\S+) s", done.stderr, re.M)
        assert line, done.stderr
        names = ("before", "after", "compilations", "cpu")
        return dict(zip(names, map(float, line.groups()), strict=True))

    def random(self) -> dict[str, float]:
        """The best score of random attributes, of one callee up to half of them."""
        draw, after, began = random.Random(0), 0.0, sum(sum(each.seconds) for each in self.sources)
        weights = [len(callees(source.before)) for source in self.sources]
        for source, weight in zip(self.sources, weights, strict=True):
            free, candidates = callees(source.before), [dict[str, str]()]
            for _ in range(int(self.found["budget"] * weight / sum(weights)) - 1):
                part = 0.5 ** draw.uniform(1, 1 + len(free).bit_length())
                chosen = [name for name in free if draw.random() < part]
                candidates.append({name: draw.choice([ALWAYS, NEVER]) for name in chosen})
            after += min(found.score for found in source.search([]).measure(candidates))
        return {"after": after, "cpu": sum(sum(each.seconds) for each in self.sources) - began}

    def run(self) -> dict[str, object]:
        """Tuned by executed instructions, which valgrind counts, of the program that `run` links."""
        script, program = self.work / "instructions.sh", str(self.work / "program")
        script.write_text(
            "valgrind --tool=callgrind --callgrind-out-file=/dev/null $1 2>&1 >/dev/null |"
            " sed -n 's/.*Collected : //p'\n"
        )
        files = self.work / "run"
        score = ["--score", f"sh {script} {{output}}"]
        found: dict[str, object] = {**self._tuned(files, "--link", self.its["run"], *score)}
        for what in "plain", "tuned":
            self._objects(files if what == "tuned" else None)
            objects = " ".join(source.made for source in self.sources)
            link = self.its["run"].replace("{objects}", objects).replace("{output}", program)
            subprocess.run(link, shell=True, check=True)
            count = ["sh", str(script), program]
            found[what] = [int(subprocess.check_output(count)) for _ in range(5)]
        return found

    def linked(self) -> dict[str, float]:
        """The bytes of .text of a shared library of all objects."""
        library, found = self.work / "linked.so", {}
        for what in "before", "after":
            self._objects(self.files if what == "after" else None)
            made = [source.made for source in self.sources]
            subprocess.run(["c++", "-shared", "-o", library, *made], check=True)
            found[what] = text_size(library)
        return found

    def _objects(self, files: Path | None) -> None:
        """Compiles all sources, with the attributes of these files."""
        for source in self.sources:
            file = files and files / source.file.relative_to(self.files)
            source.compile(_read(file) if file else {}, source.keep)


def _read(file: Path) -> dict[str, str]:
    return dict(line.split(",") for line in file.read_text().splitlines())


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--only", default=",".join(PROGRAMS), help="programs")
    parser.add_argument("--parts", default="search,linked,random,run", help="what to measure")
    parser.add_argument("--times", type=int, default=1, help="a larger budget")
    parser.add_argument("--work", type=Path, default=Path.home() / ".cache/shmbridge/tuned")
    given = parser.parse_args()
    work, found, file = given.work.absolute(), {}, given.json and given.json.absolute()
    for part in given.parts.split(","):
        for name in given.only.split(","):
            Measured(name, work / name, given.times).part(part)
    for times in 1, 3:
        stored = ((name, work / name / f"{times}.json") for name in PROGRAMS)
        whole = {name: json.loads(its.read_text()) for name, its in stored if its.exists()}
        found[f"{times}"] = {
            name: {
                **its,
                "held_out": "held_out" in PROGRAMS[name],
                "old": PROGRAMS[name].get("old"),
            }
            for name, its in whole.items()
            if "search" in its
        }
    report("tuned", {"machine": machine(), "programs": found}, file)


if __name__ == "__main__":
    main()
