"""Changes product files, one place at a time, and reports the changes that no test notices.

    python tests/mutate.py                    # 200 mutants of all product code: a night
    python tests/mutate.py -n 5 --seed 1 cdef/src/pipe shmbridge/logs    # five, of these folders

A folder gets mutants in proportion to its lines. The seed is another one in each run, and is
printed. A mutant that survives may mean the same as the file; those that compile to the same code
are not tried.
Needs root, unshare, CMake, Ninja, and the package's test dependencies. Everything happens in a copy
and an environment below build/mutation: the checkout and the installed package never change.
"""

import argparse
import difflib
import os
import random
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from pathlib import Path

from support.reliability import record

ROOT = Path(__file__).parents[1]
CROSS = "tests/cross tests/conformance/test_conformance.py"
# What is run for a folder, the longest that fits: whether all C tests, then these of pytest, of
# which those that are marked slow are left out.
AREAS = {
    "cdef/extension": (False, "tests/host tests/envs"),
    "cdef/include": (True, "tests/rl tests/package tests/embedding"),
    "cdef/launcher": (False, "tests/cli tests/peers"),
    "cdef/preload": (True, "tests/peers"),
    "cdef/src": (True, f"{CROSS} tests/host tests/runner tests/bridge"),
    "cdef/src/command": (True, "tests/cli tests/peers"),
    "cdef/src/environment": (True, "tests/rl tests/envs"),
    "cdef/src/llvm": (True, "tests/hosts tests/peers"),
    "cdef/src/model": (True, "tests/runner tests/compile"),
    "cdef/src/pipe": (True, "tests/hosts tests/conformance tests/peers"),
    "cdef/src/serdes": (True, "tests/serdes tests/conformance"),
    "cdef/src/text": (True, "tests/serdes tests/logs tests/llvm"),
    "shmbridge": (False, "tests/package tests/values tests/cli tests/host"),
    "shmbridge/_bridge": (False, "tests/bridge tests/cli tests/host"),
    "shmbridge/_compile": (False, "tests/compile tests/cli"),
    "shmbridge/_embedding.py": (False, "tests/embedding"),
    "shmbridge/_grpc": (False, "tests/remote"),
    "shmbridge/_host": (False, "tests/host tests/cross"),
    "shmbridge/_jobs": (False, "tests/training tests/compile"),
    "shmbridge/_llvm": (False, "tests/llvm tests/peers tests/cli"),
    "shmbridge/_runner": (False, "tests/runner tests/cross"),
    "shmbridge/_urls": (False, "tests/runner tests/host tests/serdes"),
    "shmbridge/_values": (False, "tests/values tests/runner tests/host"),
    "shmbridge/cli": (False, "tests/cli tests/peers"),
    "shmbridge/demo": (False, "tests/cli"),
    "shmbridge/envs": (False, "tests/envs"),
    "shmbridge/hosts": (False, "tests/hosts tests/remote tests/peers"),
    "shmbridge/logs": (False, "tests/logs"),
    "shmbridge/rl.py": (False, "tests/rl tests/envs"),
    "shmbridge/runners": (False, "tests/runner tests/remote"),
    "shmbridge/serdes": (False, "tests/serdes"),
    "shmbridge/training": (False, "tests/training tests/tune"),
}

# ---- Mutants ----

TEXT = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
HIDDEN = {  # no operator looks into these
    ".c": rf"(?ms:/\*.*?\*/|//[^\n]*|^ *#(?:\\\n|[^\n])*|{TEXT})",
    ".py": rf'(?s:#[^\n]*|"""(?:\\.|[^\\])*?"""|{TEXT})',
}
GROUP = r"[^()]*"
for _ in range(5):  # balanced parentheses, so many levels deep
    GROUP = rf"\((?:[^()]|{GROUP})*\)"
SWAPS = [("<", "<="), ("<=", "<"), (">", ">="), (">=", ">"), ("==", "!="), ("!=", "==")]
SWAPS += [("<", ">="), (">", "<="), ("+", "-"), ("-", "+"), ("+=", "-="), ("-=", "+="), ("*", "+")]
BOTH = [(rf"(?<= ){re.escape(a)}(?= )", b) for a, b in SWAPS]
BOTH += [(r"(?<![\w.])0(?![\w.])", "1"), (r"(?<![\w.])[1-9]\d*(?![\w.])", r"(\g<0> - 1)")]
BOTH += [(r"(?<![\w.])[1-9]\d*(?![\w.])", r"(\g<0> + 1)")]
OPERATORS = {  # regular expressions, and what replaces a match
    ".c": [
        *BOTH,
        *[(rf"(?<= ){re.escape(a)}(?= )", b) for a, b in [("&&", "||"), ("||", "&&"), ("&", "|")]],
        *[(rf"\b{a}\b", b) for a, b in [("true", "false"), ("false", "true")]],
        *[(rf"\b{a};", f"{b};") for a, b in [("break", "continue"), ("continue", "break")]],
        (rf"\b(if|while) ({GROUP})", r"\1 (!\2)"),
        (rf"\b(if|while) {GROUP}", r"\1 (0)"),
        (r"!(?=[\w(])", ""),
        (r"\breturn (?!0;|NULL;)[^;]+;", "return 0;"),
        (r"\breturn 0;", "return 1;"),
        # a call or an assignment to what was declared before
        (
            r"(?m)^( +)(?:\*?[\w.>\[\]-]+ (?:[-+|&^]|<<|>>)?= |(?!if|for|while)\w+\()[^;{}]*;",
            r"\1;",
        ),
        (r"(?<=\)) (?:\*?[\w.>\[\]-]+ [-+|&]?= |\w+\()[^;{}]*;", " ;"),
    ],
    ".py": [
        *BOTH,
        *[(rf"\b{a}\b", b) for a, b in [("and", "or"), ("or", "and"), ("is", "is not")]],
        *[(rf"\b{a}\b", b) for a, b in [("True", "False"), ("False", "True"), ("not ", "")]],
        *[(rf"(?m)\b{a}$", b) for a, b in [("break", "continue"), ("continue", "break")]],
        (r"(?m)\b(if|while) (.+):$", r"\1 not (\2):"),
        (r"(?m)^( +)return (?!None)\S.*(?<![(\[{])$", r"\1return None"),
        (rf"(?m)^( +)(?:raise .*[^(]|[\w.]+{GROUP}|[\w., ]+ [-+|]?= .*[^(\[{{,])$", r"\1pass"),
    ],
}


def blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", "_" if match[0][0] in "\"'" else " ", match[0])


def mutants(text: str, suffix: str) -> list[str]:
    """Every text that differs from this one by one operator at one place."""
    code, found = re.sub(HIDDEN[suffix], blank, text), []
    for pattern, new in OPERATORS[suffix]:
        for match in re.finditer(pattern, code):
            # again in the text itself, whose strings and comments are not blank
            start, end = match.span()
            groups = [text[slice(*match.span(i))] for i in range(len(match.groups()) + 1)]
            put = re.sub(r"\\g<0>|\\(\d)", lambda g: groups[int(g[1] or 0)], new)  # noqa: B023
            found.append(text[:start] + put + text[end:])
    return found


# ---- Running ----

OPTIONS = "SHMB_BUILD_TESTS=ON CMAKE_BUILD_TYPE=None CMAKE_C_FLAGS=-O2"
OPTIONS += " CMAKE_EXE_LINKER_FLAGS=-fsanitize=leak"  # tests/run looks for leaks, too
TRIED = ["killed", "timeout", "survived"]
ISOLATED = ["unshare", "--mount", "--pid", "--mount-proc", "--kill-child", "sh", "-c"]
OWN_SHM = 'mount -t tmpfs -o mode=1777 tmpfs /dev/shm && "$@"; exit $?'


def listed(*folders: str) -> list[Path]:
    """The files of the checkout."""
    command = ["git", "ls-files", "-z", *folders]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for path in map(Path, names.split("\0")[:-1]) if (ROOT / path).is_file()]


def product() -> list[Path]:
    """The files that are mutated."""
    paths = listed("cdef", "shmbridge")
    return [path for path in paths if path.suffix in OPERATORS and "_generated" not in path.parts]


def area(path: Path) -> str:
    """The folder of the table that a file belongs to."""
    return max((folder for folder in AREAS if f"{path}/".startswith(f"{folder}/")), key=len)


class Copy:
    """A copy of the checkout, a build of its C tests, and an environment with its package."""

    def __init__(self) -> None:
        self.at, self.venv = ROOT / "build/mutation/copy", ROOT / "build/mutation/venv"
        self.build, self.log = ROOT / "build/mutation/build", ROOT / "build/mutation/log"
        shutil.rmtree(self.at, ignore_errors=True)
        shutil.rmtree(self.venv, ignore_errors=True)
        self.at.mkdir(parents=True)
        for path in listed():
            (self.at / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, self.at / path)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.venv], check=True)
        self.site = next(self.venv.glob("lib/python*/site-packages"))
        (self.site / "others.pth").write_text(sysconfig.get_path("platlib"))
        options = [f"-D{option}" for option in OPTIONS.split()]
        self.run("cmake", "-G", "Ninja", "-S", self.at / "cdef", "-B", self.build, *options)

    def run(self, *command: object, seconds: float | None = None) -> bool:
        """False: it failed. It leaves no process, and no file in /dev/shm or TMPDIR."""
        path = f"{self.venv / 'bin'}:{os.environ['PATH']}"
        with tempfile.TemporaryDirectory() as temporary, self.log.open("wb") as log:
            done = subprocess.run(
                [*ISOLATED, OWN_SHM, "sh", *map(str, command)],
                cwd=self.at,
                env=os.environ | {"PATH": path, "TMPDIR": temporary},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=seconds,
            )
            return done.returncode == 0

    def install(self, path: Path) -> bool:
        """Puts the file that was written into the environment."""
        if path.suffix == ".py" and path.parts[0] == "shmbridge" and (self.site / path).exists():
            shutil.copy(self.at / path, self.site / path)
            return True
        pip = [sys.executable, "-m", "pip", "--python", self.venv / "bin/python", "install", "-q"]
        offline = ["--no-deps", "--no-build-isolation", "--no-compile", "--force-reinstall"]
        return self.run(*pip, *offline, self.at)

    def test(self, path: Path, original: bytes | None, seconds: float | None) -> str:
        """What became of the mutant that the copy holds."""
        of_c, of_python = AREAS[area(path)]
        if path.suffix == ".py":
            try:
                compile((self.at / path).read_text(), path, "exec")
            except SyntaxError:
                return "not built"
        if path.suffix != ".py" and not self.run("ninja", "-C", self.build):
            return "not built"
        if original and self.compiled(path) == original:
            return "the same"
        if not self.install(path):
            return "not built"
        ctest = ["ctest", "--test-dir", self.build, "--timeout", "120", "--stop-on-failure", "-j4"]
        pytest = [self.venv / "bin/python", "-P", "-m", "pytest", "-xq", "--timeout", "60"]
        pytest += ["-m", "not slow", "-p", "no:cacheprovider", *of_python.split()]
        for command in [ctest, pytest] if of_c else [pytest]:
            try:
                # on a busy machine one may fail without cause
                if not any(self.run(*command, seconds=seconds) for _ in range(2)):
                    return "killed"
            except subprocess.TimeoutExpired:
                return "timeout"
        return "survived"

    def compiled(self, path: Path) -> bytes | None:
        """The optimised code of a C file: equal for mutants that mean the same. None: a header, or
        not built here."""
        found = sorted(self.build.rglob(f"{path.name}.o"))
        return b"".join(each.read_bytes() for each in found if "explore" not in f"{each}") or None


class Sample:
    """Mutants of some files, in random order."""

    def __init__(self, paths: list[Path], seed: int) -> None:
        self.random = random.Random(seed)
        self.texts = {path: (ROOT / path).read_text() for path in paths}

    def draw(self) -> tuple[Path, str]:
        """A mutant: a file, in proportion to its lines, and its text."""
        while True:
            weights = [text.count("\n") for text in self.texts.values()]
            (path,) = self.random.choices(list(self.texts), weights)
            if found := mutants(self.texts[path], path.suffix):
                return path, self.random.choice(found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "places", nargs="*", default=["cdef", "shmbridge"], metavar="FILE_OR_FOLDER"
    )
    parser.add_argument("-n", "--number", type=int, default=200, help="of mutants")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--record", action="store_true", help="for docs/reliability.md")
    chosen = parser.parse_args()
    inside = [path for path in product() for place in chosen.places if path.is_relative_to(place)]
    if not inside:
        parser.error(f"no product file is in {', '.join(chosen.places)}")
    print(f"seed {chosen.seed}", flush=True)
    copy, sample = Copy(), Sample(inside, chosen.seed)
    seconds: dict[str, float] = {}  # that the tests of an area may take
    originals: dict[Path, bytes | None] = {}
    counts: dict[str, Counter[str]] = {}
    tried = 0
    while tried < chosen.number:
        path, mutant = sample.draw()
        where, text = area(path), sample.texts[path]
        if where not in seconds:
            began = time.monotonic()
            if (became := copy.test(path, None, None)) != "survived":
                sys.exit(f"{where}: {became} without a change, see {copy.log}")
            seconds[where] = 3 * (time.monotonic() - began) + 60
        originals.setdefault(path, copy.compiled(path))
        (copy.at / path).write_text(mutant)
        result = copy.test(path, originals[path], seconds[where])
        counts.setdefault(where, Counter())[result] += 1
        tried += result in TRIED
        (copy.at / path).write_text(text)
        if not copy.install(path) or not copy.run("ninja", "-C", copy.build):
            sys.exit(f"{path} is not built any more: see {copy.log}")
        lines = [text.split("\n"), mutant.split("\n")]
        print(f"{tried}: {result}: {path}", flush=True)
        if result == "survived":
            print(*difflib.unified_diff(*lines, f"{path}", f"{path}", "", "", 1, ""), sep="\n")
    if chosen.record:
        for where, count in counts.items():
            found = {result: count[result] for result in TRIED}
            record(f"mutants {where}", **found, seed=chosen.seed)
    total = sum(counts.values(), Counter[str]())
    for where, count in sorted(counts.items()):
        print(f"{where:32}", *(f"{count[result]:4} {result}" for result in [*TRIED, "the same"]))
    print(f"{tried - total['survived']} of {tried} did not survive")


if __name__ == "__main__":
    main()
