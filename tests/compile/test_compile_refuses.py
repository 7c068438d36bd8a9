"""shmbridge compile where it fails or is ended: it says why, and leaves nothing."""

import ctypes.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from support.compiling import compile, onnx_models
from support.onnx_models import T, node

import shmbridge
from shmbridge import _config
from shmbridge.errors import InvalidError

pytestmark = pytest.mark.usefixtures("quick")


NONZERO = [node("NonZero", "x", "y")], [("x", T.FLOAT, [9])], [("y", T.INT64, [1, "k"])]
TEXTS = [node("Identity", "x", "y")], [("x", T.STRING, [9])], [("y", T.STRING, [9])]
ZEROS = "nodes_treeids nodes_nodeids nodes_featureids nodes_truenodeids nodes_falsenodeids"
LEAF = dict.fromkeys(f"{ZEROS} target_treeids target_nodeids target_ids".split(), [0])
LEAF |= {"n_targets": 1, "nodes_modes": ["LEAF"], "nodes_values": [0.0], "target_weights": [1.0]}
TREE = node("TreeEnsembleRegressor", "x", "y", domain="ai.onnx.ml", **LEAF)
TREES = [TREE], [("x", T.FLOAT, [1, 3])], [("y", T.FLOAT, [1, 1])]


@pytest.mark.parametrize("model", [NONZERO, TEXTS, TREES])
def test_what_cannot_be_compiled(model, tmp_path):
    onnx_models.save(tmp_path / "m.onnx", *model)
    assert "use onnx://" in compile(tmp_path / "m.onnx", "-o", tmp_path / "m.so", code=1)
    assert not (tmp_path / "m.so").exists()


NEG, X, Y = node("Neg", "x", "y"), ("x", T.FLOAT, [1]), ("y", T.FLOAT, [1])
SUM = node("Add", "x b", "a")


@pytest.mark.parametrize(
    "model",
    [
        ([NEG], [X], [Y, ("none", T.FLOAT, [1])]),
        ([NEG, NEG], [X], [Y]),
        ([NEG], [X, X], [Y]),
        ([SUM, node("Neg", "a", "b")], [X], [("a", T.FLOAT, [1])]),
        ([node("Neg", "", "y")], [("", T.FLOAT, [1])], [Y]),
    ],
)
def test_names_that_make_no_graph_are_no_model(model, tmp_path):
    onnx_models.save(tmp_path / "m.onnx", *model)
    assert "expected an ONNX model" in compile(tmp_path / "m.onnx", "-o", tmp_path / "m", code=1)


@pytest.mark.parametrize(
    ("words", "why", "code"),
    [
        ("m.onnx -o none/m.so", "expected a writable folder", 1),
        ("m.onnx -o m.onnx", "would be overwritten", 1),
        ("m.onnx", "Missing option '-o'", 2),
        ("m.onnx -o m.so --signature s", "--signature applies only to SavedModels", 2),
        ("m.onnx -o m.so --dim n", "expected NAME=SIZE", 2),
        ("m.pt2 -o m.so", "exported to ONNX: shmbridge.training.torch.export_onnx", 1),
        ("c.onnx -o m.so", "expected an ONNX model", 1),
        ("d.bin -o m.so", "expected a file .onnx or a TensorFlow SavedModel", 1),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_compiled(
    words, why, code, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    before = Path(onnx_models.two_minus(tmp_path / "m.onnx")).read_bytes()
    for name, data in ("c.onnx", b"no model"), ("d.bin", b""), ("m.pt2", b""):
        (tmp_path / name).write_bytes(data)
    assert why in " ".join(compile(*words.split(), code=code).split())
    assert not (tmp_path / "m.so").exists() and (tmp_path / "m.onnx").read_bytes() == before


def test_the_c_compiler_fails(tmp_path, monkeypatch):
    (tmp_path / "cc").write_text("#!/bin/sh\necho this compiler is out of order; exit 3\n")
    (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("CC", f"{tmp_path}/cc -x")
    model = onnx_models.two_minus(tmp_path / "m.onnx")
    said = compile(model, "-o", tmp_path / "m.so", code=1)
    assert "cc -x -O3" in said and "exit 3" in said and "out of order" in said
    monkeypatch.setenv("CC", "no-such-compiler")
    assert "install gcc" in compile(model, "-o", tmp_path / "m.so", code=1)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["cc", "m.onnx"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_nothing(number, tmp_path):
    (tmp_path / "cc").write_text(
        f"#!/bin/sh\necho $$ > {tmp_path}/pid && mv {tmp_path}/pid {tmp_path}/started\nexec sleep "
        "60\n"
    )
    (tmp_path / "cc").chmod(0o755)
    (tmp_path / "tmp").mkdir()
    model = onnx_models.two_minus(tmp_path / "m.onnx")
    words = [sys.executable, "-P", "-m", "shmbridge.cli", "compile", model, "-o", tmp_path / "m.so"]
    where = {**os.environ, "CC": str(tmp_path / "cc"), "TMPDIR": str(tmp_path / "tmp")}
    with subprocess.Popen(
        words, env=where, start_new_session=True, stderr=subprocess.PIPE
    ) as process:
        until = time.monotonic() + 60
        while not (tmp_path / "started").exists() and time.monotonic() < until:
            time.sleep(0.02)
        process.send_signal(number)
        assert process.wait(30) != 0
    assert not (tmp_path / "m.so").exists() and not list((tmp_path / "tmp").iterdir())
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "started").read_text()), 0)


def test_the_model_by_hand(tmp_path):
    """examples/c/model.c, as its comment says to build it."""
    library = tmp_path / "model.so"
    source = _config.examples() / "c" / "model.c"
    flags = ["-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-shared", "-fPIC"]
    words = ["cc", *flags, source, *_config.cflags().split(), "-o", library]
    subprocess.run(words, check=True)
    features = np.zeros(16, np.float32)
    features[1] = 10
    (tmp_path / "limit").write_text("12\n")
    with (
        shmbridge.connect(f"aot://{library}") as plain,
        shmbridge.connect(f"aot://{library}?weights={tmp_path}/limit") as other,
    ):
        assert (
            plain.evaluate({"features": features, "function": "f"}),
            other.evaluate({"features": features}),
        ) == (0, 1)
    with pytest.raises(InvalidError, match="expected a file with a number"):
        shmbridge.connect(f"aot://{library}?weights={library}")


def test_files_that_are_no_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    library = Path(ctypes.util.find_library("m") or "libm.so.6").name
    text = tmp_path / "text.so"
    text.write_text("no library")
    system = next(
        Path(line.split()[-1])
        for line in Path("/proc/self/maps").read_text().splitlines()
        if "libc.so" in line or "libc-" in line
    )
    foreign = bytearray(system.read_bytes())
    # E_machine: a SuperH.
    foreign[18:20] = b"\x2a\x00" if foreign[18:20] != b"\x2a\x00" else b"\x3e\x00"
    (tmp_path / "foreign.so").write_bytes(foreign)
    for name, why in (
        ("gone.so", "No such file"),
        (library, "No such file"),
        ("text.so", "ELF header|too short"),
        ("foreign.so", "expected a library for this processor"),
        (str(system), "exports shmb_model_entry"),
    ):
        with pytest.raises(InvalidError, match=why):
            shmbridge.connect(f"aot://{name}")
