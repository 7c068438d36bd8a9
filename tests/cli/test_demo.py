"""shmbridge demo, and its toy model."""

import os
import re
import shutil
import subprocess
import time
from importlib.util import find_spec

import numpy as np
import pytest
from support.cli import SHMBRIDGE, run

from shmbridge import _config
from shmbridge.demo import model as toy

ONNX = _config.examples() / "c" / "model.onnx"


def test_the_toy_model_and_its_onnx_file_agree(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(ONNX.read_bytes(), providers=["CPUExecutionProvider"])
    counts = np.random.default_rng(1).integers(0, 30, (500, 16)).astype(np.float32)
    advice = toy.inline(counts)
    assert session.run(None, {"features": counts})[0].tolist() == advice.tolist()
    assert advice.dtype == np.int64 and toy.inline(counts[0]).shape == ()


def test_demo_runs_to_the_end():
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    done = run("demo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "answered by the model, 0 by the heuristic" in done.stdout
    assert re.search(r"round trip: p50 \d+", done.stdout)
    if shutil.which("clang-22"):
        made = re.search(r"the policy made (\d+) of (\d+) decisions", done.stdout)
        assert made and made[1] == made[2] and int(made[1]) > 0
        sizes = re.search(r"Bytes of code: (\d+) .*, (\d+) with advice", done.stdout)
        assert sizes and sizes[1] != sizes[2]


def test_demo_measures_a_message_of_ones_own():
    done = run("demo", "--features", "float32[300],int64[38],bool", "--advice", "float64[2,3]")
    assert done.returncode == 0, done.stdout + done.stderr
    ways = [line.split()[0] for line in done.stdout.splitlines() if "p50" in line]
    assert ways == ["shm", "pipe"] + ["grpc"] * bool(find_spec("grpc"))


@pytest.mark.parametrize("wrong", ["flat32[3]", "float32[x]", ","])
def test_demo_says_how_features_are_written(wrong):
    done = run("demo", "--features", wrong)
    assert done.returncode == 2 and "expected DTYPE[DIMS], as in float32[300]" in done.stderr


def test_demo_without_a_compiler_says_what_to_install(tmp_path):
    done = run("demo", PATH=str(tmp_path), CC="")
    assert done.returncode == 1 and "expected a C compiler" in done.stderr


def test_demo_leaves_nothing_when_it_is_ended():
    process = subprocess.Popen([*SHMBRIDGE, "demo"], text=True, stdout=subprocess.PIPE, cwd="/")
    assert process.stdout
    assert any("serve" in line for line in process.stdout)
    time.sleep(0.5)
    process.terminate()
    process.communicate(timeout=20)
    assert not [file for file in os.listdir("/dev/shm") if f"demo-{process.pid}" in file]
