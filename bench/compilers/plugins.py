"""Plug-ins of the examples, and the size of what a compiler makes."""

import subprocess
from pathlib import Path

from bench.program import SHMBRIDGE

EXAMPLES = Path(__file__).parents[2] / "examples"
INLINER = EXAMPLES / "llvm" / "inliner"


def build_plugin(version: int, build: Path, example: Path = INLINER) -> Path:
    def output(*command: str) -> str:
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    llvm = output(f"llvm-config-{version}", "--cmakedir")
    places = [f"-DLLVM_DIR={llvm}", f"-Dshmbridge_DIR={output(SHMBRIDGE, 'config', '--cmakedir')}"]
    output("cmake", "-S", str(example), "-B", str(build), *places)
    output("cmake", "--build", str(build))
    return next(build.glob("*.so"))


def text_bytes(version: int, compiled: Path) -> int:
    """The size of the object's code and constants."""
    size = subprocess.run(
        [f"llvm-size-{version}", compiled], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    return int(size.splitlines()[1].split()[0])
