"""docs/protocol.md has the code's numbers, and the bytes that the library writes."""

import ast
import os
import re
import threading
from pathlib import Path

import numpy as np
import page as pages
import pytest

import shmbridge
from shmbridge._native import ffi

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/protocol.md"
TEXT = PAGE.read_text()
FEATURES = {"costs": np.array([0.5, 1, 2], np.float32), "pass": "licm"}


def block(word, value=""):
    """The text of the page's block that WORD or WORD=VALUE marks."""
    (found,) = (each.text for each in pages.blocks(PAGE) if each.word(word) == value)
    return found


def literal(word, value):
    return ast.literal_eval(f"({block(word, value)})")


@pytest.mark.parametrize(
    "start, enum", [("Status", "enum shmb_status"), ("Dtype", "enum shmb_dtype")]
)
def test_the_numbers_are_those_of_the_code(start, enum):
    paragraph = re.search(rf"^{start}: (.*?)\.$", TEXT, re.MULTILINE | re.DOTALL)[1]
    found = {int(number): name.upper() for number, name in re.findall(r"(\d+) (\w+)", paragraph)}
    elements = ffi.typeof(enum).elements
    assert found == {number: name.removeprefix("SHMB_") for number, name in elements.items()}


def test_the_flags_are_those_of_the_code():
    found = re.findall(r"^\| (\d+) \| ([A-Z]+) \|", TEXT, re.MULTILINE)
    code = (ROOT / "cdef/src/segment/segment.h").read_text()
    flags = code.partition("/* Descriptor flags. */")[2].partition("};")[0]
    assert [(name, number) for number, name in found] == re.findall(
        r"\b((?!ALL_)[A-Z_]+) = (\d+)", flags
    )


def test_the_example_is_what_the_library_writes(name):
    with (
        shmbridge.Host(
            name, channels=1, slots=2, header_bytes=256, request_bytes=128, advice_bytes=64
        ) as host,
        host.start(lambda request: 7),
        shmbridge.connect(f"shm://{name}") as runner,
    ):
        for _ in range(2):
            assert runner.evaluate(FEATURES, dtype=np.int64) == 7
        segment = Path(f"/dev/shm/shmb.{name}").read_bytes()
    for line in block("segment").splitlines():
        at, expected = re.match(r" *(\d+)  ((?:(?:[0-9a-f]{2})+ ?)+)(?: |$)", line).groups()
        expected = bytes.fromhex(expected)
        assert segment[int(at) :][: len(expected)].hex(" ") == expected.hex(" "), line


@pytest.fixture
def pair(tmp_path):
    for end in ("in", "out"):
        os.mkfifo(tmp_path / f"pipes.{end}")
    return tmp_path / "pipes"


@pytest.mark.parametrize("serdes", ["bitstream", "json"])
def test_a_runner_sends_the_frame_and_reads_the_advice(pair, serdes):
    expected, got = literal("frame", serdes), []

    def host():
        with open(f"{pair}.in", "wb", buffering=0) as to, open(f"{pair}.out", "rb") as come:
            got.append(come.read(len(expected)))
            to.write(literal("advice", serdes))
            come.read()

    thread = threading.Thread(target=host, daemon=True)
    thread.start()
    with shmbridge.connect(f"pipe://{pair}?serdes={serdes}", connect_timeout=20) as runner:
        assert runner.evaluate(FEATURES, dtype=np.int64) == 7
    thread.join()
    assert got == [expected]


def test_a_host_answers_what_llvm_writes(tmp_path):
    seen = []

    def model(request):
        seen.append((request["context"], request["decision"], request["cost"].tolist()))
        return 1

    with (
        shmbridge.Host(f"llvm://{tmp_path}/pipes") as host,
        host.start(model),
        open(tmp_path / "pipes.in", "rb") as come,
        open(tmp_path / "pipes.out", "wb") as to,
    ):
        to.write(literal("llvm", "compiler"))
        to.flush()
        assert come.read(8) == literal("llvm", "host")
    assert seen == [("main", "inlining_decision", [0.5, 1.0])]
