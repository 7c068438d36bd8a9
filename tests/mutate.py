"""Changes product files, one place at a time, and reports the changes that no test notices.

    python tests/mutate.py                    # 200 mutants of all product code: hours
    python tests/mutate.py -n 5 cdef/src/pipe shmbridge/logs    # five, of these folders

A folder gets mutants in proportion to its lines. The seed is another one in each run, and is
printed; with --seed a run goes on where an earlier one ended. The tests whose names and words are
nearest to the changed file run first, and the first failure ends them. It counts if the same test
fails again, and passes without the change: a busy machine lets a test fail once. Mutants that
compile to the same code are not tried.
Needs root, unshare, CMake, Ninja, and the package's test dependencies. Everything happens in a copy
and an environment below build/mutation: the checkout and the installed package never change.
"""

import argparse
import contextlib
import difflib
import functools
import itertools
import os
import random
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from pathlib import Path

from support.reliability import record

ROOT = Path(__file__).parents[1]
WORK = ROOT / "build/mutation"

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


def blank(match):
    return re.sub(r"[^\n]", "_" if match[0][0] in "\"'" else " ", match[0])


def mutants(text, suffix):
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


def is_python(text):
    with contextlib.suppress(SyntaxError):
        return bool(compile(text, "", "exec"))
    return False


# ---- Files ----


def listed(*folders):
    """The files of the checkout."""
    command = ["git", "ls-files", "-z", *folders]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for path in map(Path, names.split("\0")[:-1]) if (ROOT / path).is_file()]


def product():
    """The files that are mutated."""
    paths = listed("cdef", "shmbridge")
    return [path for path in paths if path.suffix in OPERATORS and "_generated" not in path.parts]


def draw(chance, texts):
    """A mutant: a file, in proportion to its lines, and its text."""
    while True:
        (path,) = chance.choices(list(texts), [text.count("\n") for text in texts.values()])
        if found := mutants(texts[path], path.suffix):
            return path, chance.choice(found)


@functools.cache
def words(path):
    return set(re.findall(r"[a-z]{3,}|[A-Za-z]\w{3,}", f"{path} {(ROOT / path).read_text()}"))


def nearest(path, tests, suffix):
    """Tests in the order in which they share names, or words that few of them have, with a file."""
    tests = [test for test in tests if suffix in test.suffix]  # .c: also .cpp
    about, folders = words(path), {part.strip("_") for part in path.parts[1:-1]}
    files = Counter(word for test in tests for word in words(test))

    def distance(test):
        shared = sum(1 / files[word] for word in words(test) & about)
        near = not folders.isdisjoint(test.parts) or path.stem.strip("_") in test.stem
        return -shared / len(words(test)) ** 0.5 - near

    return sorted(tests, key=distance)


# ---- Running ----

OPTIONS = "SHMB_BUILD_TESTS=ON CMAKE_BUILD_TYPE=None CMAKE_C_FLAGS=-O2"
OPTIONS += " CMAKE_EXE_LINKER_FLAGS=-fsanitize=leak"  # tests/run looks for leaks, too
ISOLATED = ["unshare", "--mount", "--pid", "--mount-proc", "--kill-child", "sh", "-c"]
OWN_SHM = 'mount -t tmpfs -o mode=1777 tmpfs /dev/shm && "$@"; exit $?'
PIP = ["-q", "--no-deps", "--no-build-isolation", "--no-compile", "--force-reinstall"]
PYTEST = ["-P", "-m", "pytest", "-xq", "--timeout", "60", "-m", "not slow"]
CTEST = ["--timeout", "60", "--stop-on-failure", "-j4"]


class Copy:
    """A copy of the checkout, a build of its C tests, and an environment with its package."""

    def __init__(self):
        self.at, self.build, self.log = WORK / "copy", WORK / "build", WORK / "log"
        self.python = WORK / "venv/bin/python"
        self.environ = os.environ | {
            "PATH": f"{self.python.parent}:{os.environ['PATH']}",
            "CMAKE_C_COMPILER_LAUNCHER": shutil.which("ccache") or "",
            "PYTHONDONTWRITEBYTECODE": "1",  # a mutant may have the size and second of the file
        }
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", WORK / "venv"], check=True)
        self.site = next((WORK / "venv").glob("lib/python*/site-packages"))
        (self.site / "others.pth").write_text(sysconfig.get_path("platlib"))
        shutil.rmtree(self.at, ignore_errors=True)
        for path in listed():
            self.put(path)
        self.tests = [path for path in listed("tests") if path.name.startswith("test_")]
        self.broken = []
        self.stale = True  # the package is not that of the copy
        options = [f"-D{option}" for option in OPTIONS.split()]
        self.run("cmake", "-G", "Ninja", "-S", self.at / "cdef", "-B", self.build, *options)
        if not self.install():
            sys.exit(f"{ROOT} is not built: see {self.log}")

    def put(self, path, text=None):
        """Writes a mutant, or the file again. Ninja builds what differs."""
        data, to = text.encode() if text else (ROOT / path).read_bytes(), self.at / path
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(data)
        shutil.copymode(ROOT / path, to)
        if path.suffix == ".py" and (self.site / path).exists():
            (self.site / path).write_bytes(data)
        else:
            self.stale = True

    def run(self, *command, seconds=None):
        """False: it failed. It leaves no process, and no file in /dev/shm or TMPDIR."""
        with tempfile.TemporaryDirectory() as temporary, self.log.open("wb") as log:
            files = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            own = {"cwd": self.at, "env": self.environ | {"TMPDIR": temporary}, "timeout": seconds}
            words = [*ISOLATED, OWN_SHM, "sh", *map(str, command)]
            with contextlib.suppress(subprocess.TimeoutExpired):
                return subprocess.run(words, **files, **own).returncode == 0
            return False

    def install(self):
        pip = [sys.executable, "-m", "pip", "--python", self.python, "install", *PIP]
        if self.stale:
            self.stale = not self.run(*pip, f"--config-settings=build-dir={WORK}/wheel", self.at)
        return not self.stale

    def ctest(self, tests, *options):
        """Builds and runs these programs."""
        names = [f"{each.stem}{'_20' * (each.suffix == '.cpp')}" for each in tests]
        chosen = options or ["-R", f"^({'|'.join(names)})$"]
        command = ["ctest", "--test-dir", self.build, *CTEST, *chosen]
        return self.run("ninja", "-C", self.build, *names) and self.run(*command, seconds=200)

    def pytest(self, *options):
        cache = ["-o", f"cache_dir={WORK}/cache"]
        return self.run(self.python, *PYTEST, *cache, *self.broken, *options, seconds=150)

    def test(self, path, text):
        """What becomes of a mutant."""
        if path.suffix == ".py" and not is_python(text):
            return "left out"
        original = self.compiled(path)
        self.put(path, text)
        if original and self.compiled(path) in (None, original):
            return "left out"
        if path.parts[1] == "src":
            near = nearest(path, self.tests, ".c")
            for some in near[:8], near[8:40]:
                if not self.ctest(some) and not self.ctest(some, "--rerun-failed"):
                    self.put(path)
                    return "killed" if self.ctest(some, "--rerun-failed") else "unclear"
        if not self.install():
            return "left out"
        near = nearest(path, self.tests, ".py")
        for some in near[:3], near[3:10], near[10:20]:
            while not self.pytest(*some) and not self.pytest("--lf", *some):
                self.put(path)
                if self.install() and self.pytest("--lf", *some):
                    return "killed"
                failed = re.findall(r"^FAILED (\S+)", self.log.read_text(errors="replace"), re.M)
                if not failed:
                    return "unclear"
                self.broken += [f"--deselect={test}" for test in failed]  # here, without a mutant
                self.put(path, text)
                self.install()
        return "survived"

    def compiled(self, path):
        """The optimised code of a C file: equal for mutants that mean the same. None: not built."""
        if not self.run("ninja", "-C", self.build, "shmbridge_static", "shmbridge_preload"):
            return None
        return b"".join(each.read_bytes() for each in self.build.rglob(f"{path.name}.o")) or None


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("places", nargs="*", default=["cdef", "shmbridge"])
    parser.add_argument("-n", "--number", type=int, default=200, help="of mutants")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--record", action="store_true", help="for docs/reliability.md")
    chosen = parser.parse_args()
    inside = [path for path in product() for place in chosen.places if path.is_relative_to(place)]
    if not inside:
        parser.error(f"no product file is in {', '.join(chosen.places)}")
    print(f"seed {chosen.seed}", flush=True)
    texts = {path: (ROOT / path).read_text() for path in inside}
    copy, chance = Copy(), random.Random(chosen.seed)
    kept = WORK / f"seed-{chosen.seed}"  # a line for each that was drawn
    results = kept.read_text().splitlines() if kept.exists() else []
    counts = {}
    tried = 0
    for number in itertools.count():
        path, mutant = draw(chance, texts)
        if number == len(results):
            results.append(copy.test(path, mutant))
            copy.put(path)
            kept.write_text("".join(f"{result}\n" for result in results))
            print(f"{number}: {results[-1]}: {path}", flush=True)
            if results[-1] == "survived":
                lines = [texts[path].split("\n"), mutant.split("\n")]
                print(*difflib.unified_diff(*lines, n=1, lineterm=""), sep="\n", flush=True)
        counts.setdefault(f"{path.parent}", Counter())[results[number]] += 1
        tried += results[number] in ("killed", "survived")
        if tried == chosen.number:
            break
    for folder, count in sorted(counts.items()):
        print(f"{folder:32}", *(f"{number:4} {result}" for result, number in count.items()))
        if chosen.record:
            found = {result: count[result] for result in ("killed", "survived")}
            record(f"mutants {folder}", **found, seed=chosen.seed)


if __name__ == "__main__":
    main()
