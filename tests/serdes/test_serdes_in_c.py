"""examples/c/csv_serdes.c: a SerDes that a program in C registers serves its pipe:// runner."""

import os
import struct
import subprocess
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples/c/csv_serdes.c"


@pytest.fixture(scope="module")
def program(c_program):
    return c_program(EXAMPLE)


@pytest.fixture
def answer(program, tmp_path):
    """answer(reply): what the program asked, and what it then printed; the host is four lines of
    Python."""

    def ask(reply):
        name = tmp_path / "advice"
        os.mkfifo(f"{name}.in")
        os.mkfifo(f"{name}.out")
        command = [program, f"pipe://{name}?serdes=csv&connect_timeout=20&deadline=20"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            with open(f"{name}.in", "wb", buffering=0) as to, open(f"{name}.out", "rb") as back:
                (size,) = struct.unpack("=Q", back.read(8))
                asked = back.read(size)
                to.write(struct.pack("=Q", len(reply)) + reply)
                said, _ = process.communicate(timeout=60)
            assert process.returncode == 0
        return asked, said

    return ask


@pytest.mark.parametrize(
    ("reply", "prints"),
    [
        (b"x,1.5,-2\n", "1.5\n-2\n"),
        (b"x\n", ""),
        *((each, "expected numbers") for each in (b"x,1.5,-2", b"x,1.5,two\n", b"x,\n")),
        *((each, "expected lines") for each in (b"x", b"n" * 200 + b"\n", b"a\0b,1\n")),
        *((b",1\n", "name"), (b"x,1\ny,2\n", "found 2"), (b"", "found 0")),
    ],
)
def test_a_serdes_in_c_asks_and_reads_what_it_gets(answer, reply, prints):
    asked, said = answer(reply)
    assert asked == b"costs,0,0.5,1\n"
    assert said == prints or (not said.endswith("2\n") and prints in said), said
