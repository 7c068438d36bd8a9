"""What LLVM 23 sends, and 22 at times, by a stand-in: evictions from more than 33 live ranges, and
features that are not finite."""

import math
import re
import subprocess
import sys

import pytest
from support import onnx_models as models
from support.stock import SHMBRIDGE, environment

from shmbridge.logs import TrainingLog

pytestmark = pytest.mark.usefixtures("nothing_is_left")

COMPILER = """#!{python}
import json, struct, sys
base = next((word.split("=")[1] for word in sys.argv if "evict-inter" in word), "")
if base:
    def tensor(name, kind, count):
        return dict(name=name, type=kind, port=0, shape=[1, count])
    with open(base + ".in", "rb", 0) as replies, open(base + ".out", "wb", 0) as asks:
        features = [tensor("mask", "int64_t", 257), tensor("use_def_density", "float", 257)]
        advice = dict(name="index_to_evict", type="int64_t", port=0, shape=[1])
        header = json.dumps(dict(features=features, advice=advice))
        asks.write(header.encode() + b'\\n{{"context":"f"}}\\n{{"observation":0}}\\n')
        asks.write(struct.pack("257q", *[1] * 257))
        densities = [float(text) for text in ("nan", "inf", "-inf")]
        asks.write(struct.pack("257f", *densities, *[0] * 254) + b"\\n")
        base = struct.unpack("q", replies.read(8))[0]
open("out.o", "w").write(base and f"evicted {{base}}")
"""
POLICY = """
import math
def last(request):
    sent = request["use_def_density"][0]
    assert math.isnan(sent[0]) and sent[1] == math.inf and sent[2] == -math.inf
    return int(request["mask"][0].nonzero()[0][-1])
"""


@pytest.fixture
def run(tmp_path):
    """run(*policy): what a run of the stand-in, which writes out.o, printed."""
    compiler = tmp_path / "clang-23"
    compiler.write_text(COMPILER.format(python=sys.executable))
    compiler.chmod(0o755)
    (tmp_path / "wide.py").write_text(POLICY)

    def go(*policy):
        words = [SHMBRIDGE, "run", "--llvm", "evict", *policy, "--", compiler, "-c", "a.c"]
        there = environment(tmp_path)
        pipes = {"capture_output": True, "text": True, "timeout": 60}
        return subprocess.run(words, env=there, cwd=tmp_path, check=True, **pipes)

    return go


def test_policy_gets_every_width_and_every_number_and_a_log_has_them(run, tmp_path):
    done = run("--host", "wide:last", "--record", "log", "-v")
    assert (tmp_path / "out.o").read_text() == "evicted 256"
    assert "made 1 of 1 decisions" in done.stderr
    (record,) = TrainingLog(tmp_path / "log")
    sent = record.features["use_def_density"][0]
    assert [math.isnan(sent[0]), *sent[1:3]] == [True, math.inf, -math.inf]
    assert record.features["mask"].shape == (1, 257)


def test_model_for_33_ranges_leaves_the_compilers_own_object_and_says_both(run, tmp_path):
    kind = models.T.INT64
    parts = [models.node("ArgMax", "mask", "index", axis=1)], [("mask", kind, [1, 33])]
    models.save(tmp_path / "fixed.onnx", *parts, [("index", kind, [1, 1])])
    for policy in ("--onnx", "fixed.onnx"), ("--connect", f"onnx://{tmp_path}/fixed.onnx"):
        done = run(*policy)
        assert (tmp_path / "out.o").read_text() == ""
        assert re.search(r"int64\[1, ?33\].*found.*int64\[1, ?257\]", done.stderr), done.stderr
