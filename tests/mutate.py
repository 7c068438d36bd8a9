"""Changes product files, one place at a time, and reports the changes that no test notices.

    python tests/mutate.py                                     # each file of the table: hours
    python tests/mutate.py -n 5 cdef/src/segment/receiver.c    # five mutants of one file

A mutant that survives may mean the same as the file; those that compile to the same code are not
tried. Needs root, unshare, CMake, Ninja, and the package installed with its test dependencies.
The mutants are made and built in copies below build/mutation: the checkout never changes.
"""

import argparse
import difflib
import importlib.util
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from support.reliability import record

ROOT = Path(__file__).parents[1]
CORE = (
    "advice|attach_refuses|bind|connect|every|filling|flood|fork|golden|host_closes|host_dies"
    "|host_tells|kept|late|lying|many|old_ready|recovery_restarts|replies|runner_dies|sandbox|sleeps"
    "|stats|threads|tickets|values|wait"
)
MESSAGES = "tests/host/test_every_message.py tests/host/test_replies.py tests/host/test_views.py"
STEPS = "tests/envs/test_stepping.py tests/envs/test_vector_env.py"
JOBS = "tests/training/test_misbehaving.py tests/training/test_workers.py"
# The tests of a file: a regular expression for names of C tests; then, if these pass, of pytest.
TESTS = {
    "cdef/src/segment/receiver.c": (CORE, ""),
    "cdef/src/segment/sender.c": (CORE, "tests/cli/test_inspect.py"),
    "cdef/src/segment/attach.c": (CORE, "tests/bridge/test_names.py tests/host/test_label.py"),
    "cdef/src/segment/inspect.c": (
        "lying|host_tells",
        "tests/cli/test_inspect.py tests/cli/test_ls_and_gc.py",
    ),
    "cdef/src/segment/peer.c": (CORE, "tests/host/test_fork.py"),
    "cdef/src/segment/wait.c": (CORE, ""),
    "cdef/src/host/host.c": (CORE, MESSAGES),
    "cdef/src/host/host_channel.c": (CORE, MESSAGES),
    "cdef/extension/steps.c": ("", STEPS),
    "cdef/extension/steps_plan.c": ("", STEPS),
    "cdef/preload/preload.c": ("preload", ""),
    "shmbridge/_jobs/supervisor.py": ("", JOBS),
    "shmbridge/_jobs/supervised.py": ("", JOBS),
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

OPTIONS = "SHMB_BUILD_TESTS=ON SHMB_INSTALL=OFF SKBUILD=ON SKBUILD_SABI_VERSION=3.11"
OPTIONS += f" CMAKE_BUILD_TYPE=None CMAKE_C_FLAGS=-O2 Python_EXECUTABLE={sys.executable}"
OPTIONS += " CMAKE_EXE_LINKER_FLAGS=-fsanitize=leak"  # tests/run looks for leaks, too
TRIED = ["killed", "timeout", "survived"]
ISOLATED = ["unshare", "--mount", "--pid", "--mount-proc", "--kill-child", "sh", "-c"]
OWN_SHM = 'mount -t tmpfs -o mode=1777 tmpfs /dev/shm && "$@"; exit $?'


class Copy:
    """Copies of the C sources and of the installed package, and a build of them."""

    def __init__(self) -> None:
        self.at = ROOT / "build/mutation"
        self.site = self.at / "site"
        self.original: bytes | None = None  # of a C file, as `compiled`
        shutil.rmtree(self.site, ignore_errors=True)
        package = importlib.util.find_spec("shmbridge").submodule_search_locations[0]
        shutil.copytree(package, self.site / "shmbridge")
        folders = ("cdef", "tests/c", "tests/explore")
        for path in [path for folder in folders for path in (self.at / folder).rglob("*")]:
            if path.is_file() and not (ROOT / path.relative_to(self.at)).exists():
                path.unlink()  # it was moved
        for path in [path for folder in folders for path in (ROOT / folder).rglob("*")]:
            if path.is_file() and path.suffix != ".pyc":
                self.write(path.relative_to(ROOT), path.read_text())
        for path in (ROOT / "shmbridge").rglob("*.py"):
            self.write(path.relative_to(ROOT), path.read_text())
        if not (self.at / "build/build.ninja").exists():
            options = [f"-D{option}" for option in OPTIONS.split()]
            self.run(
                "cmake", "-G", "Ninja", "-S", self.at / "cdef", "-B", self.at / "build", *options
            )

    def write(self, path: Path, text: str) -> None:
        """A file that does not change keeps its time, so that it is not built again."""
        to = (self.site if path.parts[0] == "shmbridge" else self.at) / path
        if not to.exists() or to.read_text() != text:
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_text(text)

    def run(self, *command: object, seconds: float | None = None) -> bool:
        """False: it failed. It leaves no process, and no file in /dev/shm or TMPDIR."""
        with tempfile.TemporaryDirectory() as temporary, (self.at / "log").open("wb") as log:
            own = {"PYTHONPATH": str(self.site), "TMPDIR": temporary}
            done = subprocess.run(
                [*ISOLATED, OWN_SHM, "sh", *map(str, command)],
                cwd=ROOT,
                env=os.environ | own | {"PYTHONDONTWRITEBYTECODE": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=seconds,
            )
            return done.returncode == 0

    def test(self, path: Path, seconds: float | None) -> str:
        """What became of the mutant that the copy holds."""
        of_c, of_python = TESTS[str(path)]
        parse = "import sys; compile(open(sys.argv[1]).read(), '', 'exec')"
        if path.suffix == ".py" and not self.run(sys.executable, "-c", parse, self.site / path):
            return "not built"
        files = (ROOT / "tests/c").glob("*.c")
        names = [file.stem for file in files if of_c and re.match(rf"test_({of_c})", file.stem)]
        explorer = ["explore"] * bool(re.match("cdef/src/(segment|host)/", str(path)))
        modules = ["_native", "_fastpath"] if of_python and path.suffix == ".c" else []
        build = self.at / "build"
        ctest = ["ctest", "--test-dir", build, "--timeout", "120", "--stop-on-failure", "-j4", "-R"]
        pytest = [Path(sys.executable).with_name("pytest"), "-xq", "-p", "no:cacheprovider"]
        c_stages = [tests for tests in (names, explorer) if tests]
        stages = [(tests, [*ctest, f"^({'|'.join(tests)})$"]) for tests in c_stages]
        if of_python:
            stages.append((modules, [*pytest, "--timeout", "60", *of_python.split()]))
        for targets, command in stages:
            if targets and not self.run("ninja", "-C", build, *targets):
                return "not built"
            if self.compiled(path) == self.original:
                return "the same"
            for module in (build / "extension").glob("*.so") if targets is modules else []:
                shutil.copy(module, self.site / "shmbridge")
            try:
                # on a busy machine one may fail without cause
                if not any(self.run(*command, seconds=seconds) for _ in range(2)):
                    return "killed"
            except subprocess.TimeoutExpired:
                return "timeout"
        return "survived"

    def compiled(self, path: Path) -> bytes:
        """The optimised code of a C file: equal for mutants that mean the same."""
        found = (self.at / "build").rglob(f"{path.name}.o")
        other = {"_native.dir", "explore_parts.dir"}  # for its linker; not optimised
        return b"".join(each.read_bytes() for each in found if not other & {*each.parts})


def try_file(copy: Copy, name: str, number: int) -> Counter[str]:
    """Tries so many mutants of a file that differ, and prints those that survive."""
    path, text, counts = Path(name), (ROOT / name).read_text(), Counter[str]()
    began, copy.original = time.monotonic(), None
    if copy.test(path, None) != "survived":
        sys.exit(f"{name}: its tests fail without a change, see {copy.at / 'log'}")
    copy.original = copy.compiled(path) or None
    seconds = 3 * (time.monotonic() - began) + 60
    found = mutants(text, path.suffix)
    random.Random(name).shuffle(found)  # the same sample in every run
    for mutant in found:
        if sum(counts[result] for result in TRIED) == number:
            break
        copy.write(path, mutant)
        result = copy.test(path, seconds)
        counts[result] += 1
        if result == "survived":
            lines = difflib.unified_diff(
                text.split("\n"), mutant.split("\n"), name, name, "", "", 1, ""
            )
            print(*lines, sep="\n", flush=True)
    copy.write(path, text)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", choices=[[], *TESTS], metavar="FILE")
    parser.add_argument("-n", "--number", type=int, default=20, help="of mutants of each file")
    parser.add_argument("--record", action="store_true", help="for docs/reliability.md")
    chosen = parser.parse_args()
    copy, results, total = Copy(), [*TRIED, "the same", "not built"], Counter[str]()
    table = [f"{'':32}" + "".join(f"{result:>10}" for result in results)]
    for name in chosen.files or TESTS:
        counts = try_file(copy, name, chosen.number)
        total += counts
        if chosen.record:
            record(f"mutants {name}", **{result: counts[result] for result in results})
        table.append(f"{name:32}" + "".join(f"{counts[result]:10}" for result in results))
        print(table[0], table[-1], sep="\n", flush=True)
    tried = sum(total[result] for result in TRIED)
    print("", *table, f"{tried - total['survived']} of {tried} did not survive", sep="\n")


if __name__ == "__main__":
    main()
