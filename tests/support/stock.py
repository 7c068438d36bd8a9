"""Unmodified compilers, and what they make of a small program."""

import os
import re
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[1] / "peers/stock"
ADVICE = {"inline": "inlining_decision", "evict": "index_to_evict", "priority": "priority"}
ALL = "inline,evict,priority"
MAKES = {"clang": ALL, "opt": "inline", "llc": "evict,priority", "rustc": ALL}
NAMES = ["clang-22", "clang-19", "opt-22", "opt-19", "llc-22", "llc-19", "rustc"]
SHMBRIDGE = os.path.join(sysconfig.get_path("scripts"), "shmbridge")
# Every compiler has both transports in test_stock_compilers.py. What is not about a compiler has
# each version of LLVM and each transport once.
each_once = pytest.mark.parametrize(
    ("version", "transport"), [(22, "preload"), (19, "pipes")], indirect=["transport"]
)


def needs(*tools):
    for tool in tools:
        if not shutil.which(tool) or (tool == "rustc" and llvm_of_rustc() < 19):
            pytest.skip(
                f"no {tool} (Debian: clang-22 llvm-22 clang-19 llvm-19; rustc with LLVM 19 or "
                "later: rustup)"
            )


def llvm_of_rustc():
    said = subprocess.run(["rustc", "-vV"], stdout=subprocess.PIPE, text=True).stdout
    found = re.search(r"^LLVM version: (\d+)", said, re.MULTILINE)
    return int(found[1]) if found else 0


def run_words(decisions, policy, *options):
    """A `shmbridge run` with one of the policies; what follows is the compiler's command."""
    host = ["--host", f"policy:{policy}"] if policy else []
    return [SHMBRIDGE, "run", "--llvm", decisions, *host, *options, "--"]


def environment(folder):
    return os.environ | {
        "QUESTIONS": str(folder / "questions"),
        "PYTHONPATH": str(SOURCES),
        "XDG_RUNTIME_DIR": str(folder),  # each test is a build
    }


@dataclass
class Compiler:
    """What makes `out` of numbers.c or numbers.rs, and what that says when it runs."""

    kind: str
    version: str
    folder: Path

    def command(self, out):
        tool = f"{self.kind}{self.version}"
        return {
            "clang": [tool, "-O2", "-c", SOURCES / "numbers.c"],
            "opt": [tool, self.folder / "raw.bc"],
            "llc": [tool, "-filetype=obj", "-relocation-model=pic", self.folder / "optimised.bc"],
            "rustc": ["rustc", "-O", "-Ccodegen-units=1", SOURCES / "numbers.rs"],
        }[self.kind] + ["-o", out]

    def prepare(self):
        clang = [f"clang{self.version}", "-O2", "-emit-llvm", "-c", SOURCES / "numbers.c"]
        if self.kind == "opt":
            subprocess.run(
                [*clang, "-Xclang", "-disable-llvm-passes", "-o", self.folder / "raw.bc"],
                check=True,
            )
        if self.kind == "llc":
            subprocess.run([*clang, "-o", self.folder / "optimised.bc"], check=True)

    def plain(self, out):
        command = self.command(out)
        passes = ["-passes=scc-oz-module-inliner"] if self.kind == "opt" else []
        subprocess.run([command[0], *passes, *command[1:]], check=True)
        return out

    def says(self, out):
        """What the program made of `out` prints."""
        program = out
        if self.kind != "rustc":
            program = out.with_suffix(".program")
            bitcode = out.read_bytes()[:2] == b"BC"
            object_file = out.with_suffix(".bc") if bitcode else out
            if bitcode:
                shutil.copy(out, object_file)
            subprocess.run(
                [f"clang{self.version}", SOURCES / "main.c", object_file, "-o", program], check=True
            )
        return subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True).stdout


def expect_right_object(version, tmp_path):
    used = Compiler("clang", f"-{version}", tmp_path)
    assert used.says(tmp_path / "out.o") == used.says(used.plain(tmp_path / "plain.o"))


def expect_plain_object(version, tmp_path):
    plain = Compiler("clang", f"-{version}", tmp_path).plain(tmp_path / "plain.o")
    assert (tmp_path / "out.o").read_bytes() == plain.read_bytes()


def clang(version, tmp_path):
    needs(f"clang-{version}")
    return Compiler("clang", f"-{version}", tmp_path).command(tmp_path / "out.o")


def compiler_of(name, folder):
    kind, _, version = name.partition("-")
    needs(name, *([f"clang-{version}"] if version else []))
    made = Compiler(kind, f"-{version}" if version else "", folder)
    made.prepare()
    return made
