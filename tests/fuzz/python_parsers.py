"""Python's parsers of untrusted bytes: each gets changed copies of valid ones, and must return or
raise an error that it documents."""

import contextlib
import json
import os
import re
import struct
import subprocess
import time

import numpy as np

from shmbridge import InvalidError, Ragged, ShmbridgeError, serdes
from shmbridge._grpc import wire
from shmbridge.logs import LogWriter, TrainingLog
from shmbridge.training import Corpus, scores

NUMBERS = ["-1", "0", "1e400", "NaN", "-Infinity", "1" * 400, "9" * 5000, f"{1 << 63}", '""']
NESTED = b"[" * 100_000
FEATURES = {
    "x": np.ones((2, 3), np.float32),
    "names": ["a", "bc"],
    "s": "text",
    "l": Ragged(np.arange(3), np.array([0, 1, 3])),
}


def log(folder):
    with LogWriter(folder / "valid-") as writer:
        for i in range(3):
            question = {"x": np.float32(i), "context": "f", "decision": "d"}
            writer.write(question, i, reward=i / 2, label="a.c")
    return [writer.paths[0].read_bytes()]


def object_file(folder):
    (folder / "a.c").write_text("int f(void) { return 1; }")
    subprocess.run(["cc", "-c", folder / "a.c", "-o", folder / "a.o"], check=True)
    return [(folder / "a.o").read_bytes()]


def read_log(path):
    for record in TrainingLog(path):
        assert record.question.keys() >= record.features.keys()


def read_corpus(path):
    os.replace(path, path.with_name("corpus_description.json"))
    for read in (Corpus.from_compile_commands, Corpus.from_description):
        with contextlib.suppress(InvalidError, FileNotFoundError):
            of = path.with_name("corpus_description.json")
            read(of if read == Corpus.from_compile_commands else of.parent)


def read_object(path):
    scores.text_size(path)


def read_protobuf(path):
    own, data = serdes.find("protobuf"), path.read_bytes()
    for decode in (own.decode, own.decode_request, lambda data: own.decode_advice(data, None)):
        with contextlib.suppress(ShmbridgeError):
            decode(data)


def read_metadata(path):
    text = path.read_text(errors="replace")
    metadata = [line.partition(" ")[::2] for line in text.split("\n")]
    assert 0 <= wire.status_in(metadata) < 256
    wire.deadline_in(metadata)


COMMANDS = json.dumps([{"directory": "/d", "file": "a.c", "command": "clang -O2 -c a.c -o a.o"}])
CORPUS = json.dumps({"modules": ["a"], "has_thinlto": False, "global_command_override": ["-O2"]})
JSON = [COMMANDS.encode(), CORPUS.encode()]
# By the file that is measured: a function of a folder that returns valid inputs, and one that reads
# a file.
PARSERS = {
    "logs/_reader.py": (log, read_log),
    "training/_corpus.py": (lambda _: JSON, read_corpus),
    "training/scores.py": (object_file, read_object),
    "serdes/protobuf.py": (
        lambda _: [serdes.find("protobuf").encode_request(FEATURES, np.dtype("i8"))],
        read_protobuf,
    ),
    "_grpc/wire.py": (lambda _: [f"{wire.STATUS} 3\n{wire.DEADLINE} 1.5".encode()], read_metadata),
}


def change(random, valid):
    """A copy with some changes: bytes, numbers, pieces that move, a cut."""
    data = bytearray(random.choice(valid))
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(data) + 1)
        end = min(len(data), at + random.choice([1, 2, 4, 8, 40]))
        match random.randrange(8):
            case 0 | 1 if at < len(data):
                data[at] = random.choice([random.randrange(256), 0, 0x7F, 0xFF, data[at] ^ 1])
            case 2:
                del data[at:end]
            case 3:
                data[at:at] = data[random.randrange(len(data) + 1) :][: end - at]
            case 4 | 5 if numbers := [*re.finditer(rb"-?\d+(\.\d+)?", data)]:
                begin, end = random.choice(numbers).span()
                data[begin:end] = random.choice(NUMBERS).encode()
            case 6 if len(data) >= 8:
                at = random.randrange(len(data) - 7)
                struct.pack_into("<Q", data, at, random.choice([0, 1, 1 << 31, 1 << 63, 1 << 40]))
            case 7 if random.randrange(4) == 0:
                data[at:] = random.choice([b"", NESTED, b"\n", b"\xff"])
    return bytes(data)


def fuzz(name, folder, random, inputs=0, seconds=0.0):
    """Reads so many inputs, or for that long; returns how many. A failure names its input's file in
    the folder."""
    make, read = PARSERS[name]
    valid, until, count = make(folder), time.monotonic() + seconds, 0
    while count < inputs or time.monotonic() < until:
        path = folder / "input"
        path.write_bytes(change(random, valid) if count else valid[0])
        with contextlib.suppress(ShmbridgeError):
            read(path)
        count += 1
    return count
