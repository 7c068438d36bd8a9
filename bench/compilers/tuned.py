"""How much smaller does `shmbridge tune` make programs? python bench tuned --json FILE

tuned.toml has the programs. Each is tuned with one compilation for each two functions (--times 3: three
times as many), and by random attributes with as many. It is then built twice with the files, the objects
are compared, and its test runs. Figures are stored in --work, so the command can be interrupted.

Fixed before the first run: the programs, the budgets, the score (bytes of .text), and the targets: at most
-1.5 % in the mean, and -2 % with three times as many.
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

from program import SHMBRIDGE, options, report
from run import machine
from sources import fetch

from shmbridge._tune import ALWAYS, NEVER, Attributes, Source, callees
from shmbridge.cli.tune import modules_of
from shmbridge.training.scores import text_size

PROGRAMS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())


def measured(its: dict[str, str], work: Path, times: int) -> dict[str, object]:
    """What is measured of a program, in a folder of its own."""
    os.chdir(fetch(work, its["package"]) / its["folder"])
    words = [*its["compiler"].split(), *sorted(map(str, Path().glob(its["sources"])))]
    sources = [Source(words[0], module) for module in modules_of(words[1:], None)]
    functions = sum(len(source.before) for source in sources)
    budget = times * math.ceil(functions / 2)
    command = [SHMBRIDGE, "tune", "-j2", "--compilations", str(budget), "-o", str(work / "files")]
    said = subprocess.run([*command, "--", *words], check=True, stderr=subprocess.PIPE).stderr
    line = re.search(rb"^(\d+) to (\d+) .* with (\d+) compilations, (\d+) s of CPU", said, re.M)
    assert line, said
    names = ("before", "after", "compilations", "cpu")
    after = sum(at_random(each, budget // len(sources)) for each in sources)
    chance = {"after": after, "cpu": sum(source.cpu for source in sources)}
    made = [[work / f"{again}{at}.o" for at in range(len(sources))] for again in range(2)]
    for source, *both in zip(sources, *made, strict=True):
        file = work / "files" / f"{os.path.relpath(source.module.path)}.csv"
        for to in both:
            flags = [*source.module.flags, *source.flags(str(file))]
            subprocess.run(
                [words[0], *flags, "-c", str(source.module.path), "-o", str(to)], check=True
            )
    test = ["bash", "-ec", its["test"], sys.executable, *map(str, made[0])]
    return {
        "search": dict(zip(names, map(int, line.groups()), strict=True)),
        "random": chance,
        "sources": len(sources),
        "decisions": functions,
        "identical": all(a.read_bytes() == b.read_bytes() for a, b in zip(*made, strict=True)),
        "tested": not subprocess.run(test, check=False).returncode,
    }


def at_random(source: Source, budget: int) -> float:
    """The best score of random attributes, of one callee up to half of them."""
    draw, free, candidates = random.Random(0), callees(source.before), list[Attributes]([{}])
    for _ in range(budget - 2 if free else 0):
        part = 0.5 ** draw.uniform(1, 1 + len(free).bit_length())
        chosen = [name for name in free if draw.random() < part]
        candidates.append({name: draw.choice([ALWAYS, NEVER]) for name in chosen})
    measure = source.measure(text_size, b"random", 2, lambda: None, "")
    return min(found.score for each in candidates for found in measure([each]))


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--only", default=",".join(PROGRAMS), help="programs")
    parser.add_argument("--times", type=int, default=1, help="a larger budget")
    parser.add_argument("--work", type=Path, default=Path.home() / ".cache/shmbridge/tuned")
    given = parser.parse_args()
    found, names = {}, given.only.split(",")
    for name in names:
        file = given.work.absolute() / name / f"{given.times}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            file.write_text(json.dumps(measured(PROGRAMS[name], file.parent, given.times)))
        found[name] = json.loads(file.read_text())
    missing = [name for name in PROGRAMS if name not in names]
    target = -0.015 if given.times == 1 else -0.02
    whole = {"machine": machine(), "target": target, "programs": found, "unfinished": missing}
    report("tuned", whole, given.json)


if __name__ == "__main__":
    main()
