"""Scores of what came out, beside other tools that say the same."""

import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from shmbridge.errors import InvalidError
from shmbridge.training.scores import (
    ir_instructions,
    printed,
    run_instructions,
    run_time,
    text_size,
)

SOURCE = """
__attribute__((noinline)) static int twice(int x) { return x * 2; }
__attribute__((section(".text.cold"))) int cold(int x) { return twice(x) + 1; }
int main(int n, char **words) {
    unsigned sum = 0;
    for (int i = 0; i < 3000000; i++) { sum += i ^ n; __asm__("" : "+r"(sum)); }
    switch (n) { case 1: return 0; case 2: return words[1][0] - 'a'; case 9: sum = 5; }
    return (int)sum;
}
"""
CLANG = next((f"clang-{n}" for n in range(30, 14, -1) if shutil.which(f"clang-{n}")), None)
needs_clang = pytest.mark.skipif(CLANG is None, reason="no clang")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """compiled(*flags, compiler="cc"): the path of what the compiler made of SOURCE."""
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "a.c").write_text(SOURCE)

    def make(*flags, compiler="cc"):
        path = folder / re.sub(r"\W", "", f"{compiler}{flags}")
        if not path.exists():
            subprocess.run([compiler, *flags, folder / "a.c", "-o", path], check=True)
        return path

    return make


def size_of_text(path):
    """As binutils' size tells."""
    lines = subprocess.run(["size", "-A", path], capture_output=True, text=True, check=True).stdout
    sizes = [line.split() for line in lines.splitlines()]
    return sum(
        int(words[1]) for words in sizes if words and re.fullmatch(r"\.text(\..*)?", words[0])
    )


@pytest.mark.parametrize(
    "flags", [("-c",), ("-O2", "-c"), ("-Os", "-c", "-ffunction-sections"), ("-O2",), ("-g", "-c")]
)
def test_text_is_what_size_says(compiled, flags):
    path = compiled(*flags)
    assert text_size(path) == size_of_text(path) > 0


@needs_clang
@pytest.mark.parametrize("target", ["aarch64", "i686", "mips", "powerpc64"])
def test_text_of_other_machines(compiled, target):
    try:
        path = compiled(
            f"--target={target}-linux-gnu", "-c", "-O1", "-ffreestanding", compiler=CLANG
        )
    except subprocess.CalledProcessError:
        pytest.skip(f"no {target}")
    tool = shutil.which(CLANG.replace("clang", "llvm-size"))
    if tool is None:
        pytest.skip("no llvm-size")
    lines = subprocess.run([tool, "-A", path], capture_output=True, text=True, check=True).stdout
    expected = sum(map(int, re.findall(r"^\.text(?:\.\S+)?\s+(\d+)", lines, re.MULTILINE)))
    assert text_size(path) == expected > 0


def test_text_of_more_sections_than_the_header_can_count(tmp_path):
    """70000 sections: their number is in the first one's size, the names' place in its link."""
    names = b"\0.text\0.names\0"
    count = 70_000
    table = 64 + len(names)

    def section(name, size, offset=0, link=0):
        return struct.pack("<IIQQQQIIQQ", name, 1, 0, 0, offset, size, link, 0, 1, 0)

    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, 0, 0xFFFF)
    first = section(0, count, link=count - 1)
    last = section(7, len(names), 64)
    path = tmp_path / "many.o"
    path.write_bytes(header + names + first + section(1, 3) * (count - 2) + last)
    assert text_size(path) == 3 * (count - 2)


def test_section_headers_of_no_bytes_are_an_invalid_error(compiled, tmp_path):
    broken = bytearray(compiled("-c").read_bytes())
    (table,) = struct.unpack_from("<Q", broken, 40)
    struct.pack_into("<HH", broken, 58, 0, 0)  # their size; their count is in the first of them
    struct.pack_into("<Q", broken, table + 32, 1 << 40)
    (tmp_path / "broken.o").write_bytes(broken)
    with pytest.raises(InvalidError, match="expected a whole ELF file: section headers of 0 bytes"):
        text_size(tmp_path / "broken.o")


@pytest.mark.parametrize(
    ("score", "expected"), [(text_size, "an ELF file, found b'text'"), (ir_instructions, "LLVM IR")]
)
def test_a_file_of_something_else_is_an_error(tmp_path, score, expected):
    path = tmp_path / "x"
    path.write_bytes(b"text")
    with pytest.raises(InvalidError, match=f"expected {expected}"):
        score(path)


@needs_clang
def test_instructions_of_ir_in_text_and_in_bitcode(compiled):
    text = compiled("-S", "-emit-llvm", "-O1", compiler=CLANG)
    bitcode = compiled("-c", "-emit-llvm", "-O1", compiler=CLANG)
    assert ir_instructions(text) == ir_instructions(bitcode) > 10
    tool = shutil.which(CLANG.replace("clang", "opt"))
    if tool:  # LLVM's own count
        words = [tool, "-disable-output", "-passes=print<func-properties>", text]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stderr
        assert ir_instructions(text) == sum(
            map(int, re.findall(r"^TotalInstructionCount: (\d+)", said, re.MULTILINE))
        )


def test_time_and_instructions_of_a_run(compiled):
    program = compiled("-O1")
    assert run_time()(program) > 0
    assert run_instructions()(program) > 3_000_000
    assert run_time("a")(program) > 0
    with pytest.raises(InvalidError, match="exit 1"):
        run_time("b")(program)


def test_a_run_that_hangs_is_an_error():
    with pytest.raises(InvalidError, match="time limit"):
        run_time("1000", seconds=0.5)(Path("/bin/sleep"))


def test_without_perf_and_valgrind_instructions_cannot_be_counted(monkeypatch):
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    with pytest.raises(InvalidError, match="install one"):
        run_instructions()(Path("/bin/true"))


def test_a_number_that_a_command_prints():
    say = "sh -c 'echo instructions: 1,234.5; echo cycles: -7e3 >&2; exit $0' {output}"
    assert printed(say, r"^instructions: (.*)$")(Path("0")) == 1234.5
    assert printed(say, r"^cycles: (.*)$")(Path("0")) == -7000
    with pytest.raises(InvalidError, match="expected a number .*instructions: 1"):
        printed(say, r"seconds: (.*)")(Path("0"))
    with pytest.raises(InvalidError, match="exit 3"):
        printed(say, r"cycles: (.*)")(Path("3"))
    with pytest.raises(InvalidError, match="found '1,234.5 or so'"):
        printed(["echo", "{output}"], "(.*)")(Path("1,234.5 or so"))
