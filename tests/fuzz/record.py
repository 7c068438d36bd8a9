"""Runs every fuzzer and counts the branches of each parser that it reached, for
docs/results/reliability.json; keeps in corpus/ the inputs that reach different code:

python tests/fuzz/record.py --minutes 10

It needs clang with llvm-cov, and the installed package with its test requirements.
"""

import argparse
import io
import json
import logging
import os
import random
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

import coverage
from support.reliability import record

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "fuzz-record"
CORPUS = HERE / "corpus"
# The fuzzers, and the files below cdef/src/ whose branches count.
FUZZERS = {
    "attach": ["segment/attach.c"],
    "channel": ["segment/receiver.c", "host/host_channel.c", "runner/tickets.c"],
    "header": ["message/header.c"],
    "llvm": ["llvm/llvm.c", "llvm/llvm_advice.c", "text/spec.c"],
    "pipe": ["pipe/frames.c", "pipe/pipe.c"],
    "serdes": [
        *("serdes/bitstream.c", "serdes/json.c", "serdes/flatbuffers.c"),
        *("text/json_reader.c", "text/json_decimal.c"),
    ],
}


HEADER = (
    '{"features":[{"name":"%s","type":"int64_t","port":0,"shape":[%s]}],'
    '"advice":{"name":"%s","type":"%s","port":0,"shape":[1]},'
    '"want":"int64"}\n{"context":"\\u00e9f"}\n{"observation":0}\n'
)
JSON = (
    r'{"x": [1.5e3, -2E-2, 0], "u": 18446744073709551615, "t": "\u00e9\ud83d\ude00\udc80\n\"", '
    r'"b": [true, false], "r": [[1], [2, 3]], "l": ["", "a"], "f": [NaN, Infinity, -Infinity], '
    r'"s": 3.4028235e38, "d": 2.2250738585072011e-308, "i": -9223372036854775808}'
)
CHANNELS = [  # feature, its shape, advice, its type
    ("inlining_default", "1", "inlining_decision", "int64_t"),
    ("mask", "1,33", "index_to_evict", "int64_t"),
    ("li_size", "1", "priority", "float"),
    ("x", "2,0", "y", "int8_t"),
]


def seeds(name):
    """Valid inputs, which hold what mutations hardly find."""
    import python_parsers

    from shmbridge import serdes

    if name == "llvm":
        return [
            b"\1\0" + bytes([mood]) + (HEADER % c).encode() for c in CHANNELS for mood in (0, 5)
        ]
    if name not in ("serdes", "pipe"):
        return []
    found = [b"\1\0" + JSON.encode()] if name == "serdes" else []
    for i, kind in enumerate(("bitstream", "json", "flatbuffers")):
        texts = {} if kind == "bitstream" else python_parsers.FEATURES
        for features in ({"x": 1}, {"x": 1.5, "y": [1, 2]} | texts):
            data = serdes.find(kind).encode(features)
            frame = bytes([i << 1, 0, len(data) & 255])
            found.append((bytes([i, 0]) if name == "serdes" else frame) + data)
    return found


def fuzz(name, version, seconds):
    """Runs a fuzzer from its corpus. Returns its inputs."""
    program, kept = BUILD / "fuzz" / f"fuzz_{name}", CORPUS / f"fuzz_{name}.tar.xz"
    inputs, few = BUILD / f"inputs-{name}", BUILD / f"few-{name}"
    for folder in (inputs, few):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    if kept.exists():
        shutil.unpack_archive(kept, inputs)
    for i, data in enumerate(seeds(name)):
        (inputs / f"seed{i}").write_bytes(data)
    options = [
        "-timeout=10",
        "-max_len=400",
        f"-artifact_prefix={BUILD}/{name}-",
        "-print_final_stats=1",
    ]
    profile = {"LLVM_PROFILE_FILE": f"{BUILD}/{name}.profraw"}
    done = subprocess.run(
        [program, f"-max_total_time={seconds:.0f}", *options, inputs],
        env=os.environ | profile, stderr=subprocess.PIPE, errors="replace", check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(done.stderr[-4000:])
    unused = {"LLVM_PROFILE_FILE": "/dev/null"}
    merge = [program, "-set_cover_merge=1", "-max_len=400", few, inputs]
    subprocess.run(merge, env=os.environ | unused, stderr=subprocess.DEVNULL, check=True)
    with tarfile.open(kept, "w:xz", format=tarfile.USTAR_FORMAT, preset=9) as archive:
        for path in sorted(few.iterdir()):  # the same bytes for the same inputs
            data, entry = path.read_bytes(), tarfile.TarInfo(path.name[:8])
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    merged = [f"llvm-profdata{version}", "merge", f"{BUILD}/{name}.profraw"]
    subprocess.run([*merged, "-o", f"{BUILD}/{name}.profile"], check=True)
    return int(re.search(r"number_of_executed_units: (\d+)", done.stderr)[1])


def c_branches(name, version):
    """By file: its branches, and how many were reached."""
    export = [f"llvm-cov{version}", "export", f"--instr-profile={BUILD}/{name}.profile"]
    done = subprocess.run(
        [*export, BUILD / "fuzz" / f"fuzz_{name}"], stdout=subprocess.PIPE, check=True
    )
    data, found = json.loads(done.stdout)["data"][0], {}
    for path in FUZZERS[name]:
        (file,) = (each for each in data["files"] if each["filename"].endswith(f"cdef/src/{path}"))
        branches = file["summary"]["branches"]
        found[f"cdef/src/{path}"] = branches["count"], branches["covered"]
    return found


def c_fuzzers(clang, seconds):
    subprocess.run(
        ["cmake", "-S", ROOT / "cdef", "-B", BUILD, "-G", "Ninja", "-DSHMB_BUILD_TESTS=ON"]
        + [f"-DCMAKE_C_COMPILER={clang}", f"-DSHMB_COVERAGE={BUILD}/unused.profraw"]
        + ["-DSHMB_SANITIZE=fuzzer-no-link,address,undefined"],
        stdout=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    subprocess.run(["cmake", "--build", BUILD, "--target", "fuzz/all"], check=True)
    version = clang.removeprefix("clang")
    for name in FUZZERS:
        inputs = fuzz(name, version, seconds)
        for file, counts in c_branches(name, version).items():
            keep(file, inputs, seconds, *counts)


def python_fuzzers(seconds):
    import python_parsers

    import shmbridge

    package = Path(shmbridge.__file__).parent
    logging.getLogger("shmbridge").setLevel(logging.ERROR)
    for name in python_parsers.PARSERS:
        file = package / name
        counter = coverage.Coverage(
            branch=True, config_file=False, data_file=None, include=[str(file)]
        )
        with tempfile.TemporaryDirectory() as folder:
            counter.start()
            inputs = python_parsers.fuzz(name, Path(folder), random.Random(), seconds=seconds)
            counter.stop()
            counter.json_report(outfile=f"{folder}/report")
            report = json.loads(Path(folder, "report").read_text())["files"]
        (found,) = report.values()
        total = found["summary"]
        if total["covered_branches"]:  # what reads metadata in wire.py has no branches
            counts = total["num_branches"], total["covered_branches"]
            keep(f"shmbridge/{name}", inputs, seconds, *counts)


def keep(file, inputs, seconds, branches, reached):
    figures = {"inputs": inputs, "minutes": round(seconds / 60, 2)}
    record(f"fuzzed {file}", branches=branches, reached=reached, **figures)
    print(f"{file}: {reached} of {branches} branches, {inputs} inputs", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="of all fuzzers together")
    parser.add_argument("--clang", default="clang-22")
    chosen = parser.parse_args()
    import python_parsers

    each = chosen.minutes * 60 / (len(FUZZERS) + len(python_parsers.PARSERS))
    CORPUS.mkdir(exist_ok=True)
    c_fuzzers(chosen.clang, each)
    python_fuzzers(each)


if __name__ == "__main__":
    main()
