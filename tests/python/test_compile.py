"""shmbridge compile: from ONNX to a library that gives what ONNX Runtime gives; weights apart; what cannot be compiled; aot:// in Python."""

import contextlib
import ctypes.util
import functools
import io
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import shmbridge
from shmbridge import _config
from shmbridge.cli import main
from shmbridge.compile.toolchain import CompileError, Job
from shmbridge.errors import InvalidError, MismatchError, ModelError

pytest.importorskip("onnx", reason="needs onnx: pip install 'shmbridge[compile]'")
pytest.importorskip("emx_onnx_cgen", reason="needs emx-onnx-cgen: pip install 'shmbridge[compile]'")
runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime to compare with")
if not shutil.which("cc"):
    pytest.skip("needs a C compiler", allow_module_level=True)

import onnx_models  # noqa: E402
from onnx import TensorProto as T  # noqa: E402
from onnx_models import node  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def quick():
    """Has the generator run in this process, where it loads its templates, a second each time, but once."""
    from emx_onnx_cgen import cli
    from emx_onnx_cgen.codegen.c_emitter import CEmitter

    run, templates = Job.run, functools.cache(CEmitter(None)._load_templates)

    def here(job, *command, env=None):
        if "emx_onnx_cgen" not in command:
            return run(job, *command, env=env)
        if job.verbose:
            job.say(" ".join(map(str, command)))
        with (
            pytest.MonkeyPatch.context() as there,
            contextlib.redirect_stdout(io.StringIO()) as said,
        ):
            there.chdir(job.folder)
            if cli.main(list(map(str, command[3:]))):
                raise CompileError(said.getvalue())
        return said.getvalue()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "run", here)
        patch.setattr(CEmitter, "_load_templates", lambda _, testbench: templates(testbench))
        yield


def compile(*words, code=0):
    """Runs the command: what it printed."""
    result = CliRunner().invoke(main, ["compile", *map(str, words)])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def expected(model, **features):
    return runtime.InferenceSession(str(model), providers=["CPUExecutionProvider"]).run(
        None, features
    )


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder with perceptron.onnx and perceptron.so, compiled once."""
    folder = tmp_path_factory.mktemp("models")
    said = compile(
        onnx_models.perceptron(folder / "perceptron.onnx"), "-o", folder / "perceptron.so"
    )
    assert "checked: differs from ONNX Runtime by" in said or "checked: exactly" in said
    return folder


def test_open_sizes_and_a_missing_leading_one(models):
    rng = np.random.default_rng(1)
    with shmbridge.connect(f"aot://{models}/perceptron.so") as runner:
        for batch in (1, 3, 50, 2, 1):
            x = rng.normal(size=(batch, 30)).astype(np.float32)
            np.testing.assert_allclose(
                runner.evaluate({"x": x}),
                expected(models / "perceptron.onnx", x=x)[0],
                rtol=1e-4,
                atol=1e-5,
            )
        one = runner.evaluate({"x": x[0]})
        assert one.shape == (1,)
        with pytest.raises(MismatchError, match=r"float32\[\?,30\], found float32\[1,31\]"):
            runner.evaluate({"x": np.zeros((1, 31), np.float32)})
        with pytest.raises(ModelError, match=r'"x": dim 0 must be 1 to 2147483647'):
            runner.evaluate({"x": np.zeros((0, 30), np.float32)})
        assert runner.evaluate({"x": x[0]}) == one


DTYPES = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
]


def test_every_dtype_and_scalars_in_one_model(tmp_path):
    """Each input comes out again, as a tensor and as a scalar; the names are no names of C."""
    nodes, inputs, outputs = [], [], []
    for dtype in DTYPES:
        element = {"float32": T.FLOAT, "float64": T.DOUBLE}.get(dtype) or getattr(T, dtype.upper())
        for shape in ([2, 3], []):
            name = f"{dtype}/{len(shape)}"
            nodes.append(node("Identity", name, f"{name}:out"))
            inputs.append((name, element, shape))
            outputs.append((f"{name}:out", element, shape))
    compile(
        onnx_models.save(tmp_path / "all.onnx", nodes, inputs, outputs), "-o", tmp_path / "all.so"
    )
    rng = np.random.default_rng(2)
    features = {
        name: (rng.normal(size=shape) * 50).astype(name.split("/")[0]) for name, _, shape in inputs
    }
    with shmbridge.connect(f"aot://{tmp_path}/all.so") as runner:
        runner.evaluate(features)
        for name, value in features.items():
            found = np.asarray(runner.advice[f"{name}:out"])
            assert found.shape == value.shape and np.array_equal(found, value)
    shown = compile("--show", tmp_path / "all.so")
    assert (
        "from all.onnx, by emx-onnx-cgen" in shown
        and "input  int16/2: int16[2,3]" in shown
        and "output bool/0:out: bool[]" in shown
    )


def test_from_c_and_cpp(models, c_runner, c_program, tmp_path):
    x = np.linspace(-1, 1, 30, dtype=np.float32)
    right = float(expected(models / "perceptron.onnx", x=x[None])[0].item())
    runner = c_runner(f"aot://{models}/perceptron.so")
    runner.do("feature", "x", 11, 2, 1, 30, x.tobytes().hex())
    assert float(runner.do("f32").split()[1]) == pytest.approx(right, rel=1e-4)
    source = tmp_path / "ask.cpp"
    source.write_text("""
#include <cstdio>
#include <shmbridge.hpp>
int main(int, char **words) {
    shmbridge::Runner runner(words[1]);
    auto x = runner.feature<float>("x", {1, 30});
    for (int i = 0; i < 30; i++) x[i] = -1 + 2 * i / 29.f;
    auto advice = runner.evaluate<float>();
    if (!advice) return 1;
    std::printf("%g", double(*advice));
}
""")
    program = c_program(source)
    done = subprocess.run(
        [program, f"aot://{models}/perceptron.so"], stdout=subprocess.PIPE, check=True
    )
    assert float(done.stdout) == pytest.approx(right, rel=1e-4)


def test_weights_in_a_file_change_without_compiling(tmp_path):
    first = onnx_models.perceptron(tmp_path / "first.onnx", seed=0)
    second = onnx_models.perceptron(tmp_path / "second.onnx", seed=1)
    compile(first, "-o", tmp_path / "m.so", "--weights", tmp_path / "w")
    library = (tmp_path / "m.so").read_bytes()
    x = np.ones((2, 30), np.float32)
    url = f"aot://{tmp_path}/m.so?weights={tmp_path}/w"
    with shmbridge.connect(url) as old:
        assert np.allclose(old.evaluate({"x": x}), expected(first, x=x)[0], rtol=1e-4)
        compile(second, "--weights", tmp_path / "w")
        assert (tmp_path / "m.so").read_bytes() == library
        with shmbridge.connect(url) as new:  # beside the old
            assert np.allclose(new.evaluate({"x": x}), expected(second, x=x)[0], rtol=1e-4)
            assert np.allclose(old.evaluate({"x": x}), expected(first, x=x)[0], rtol=1e-4)
    other = onnx_models.perceptron(tmp_path / "other.onnx", features=31)
    compile(other, "--weights", tmp_path / "o")
    (tmp_path / "short").write_bytes((tmp_path / "w").read_bytes()[:-1])
    for file, why in (
        ("o", "another model's"),
        ("short", "another size"),
        ("first.onnx", "another kind"),
        ("gone", "No such file"),
    ):
        with pytest.raises(InvalidError, match=f"weights=.*{file}.*{why}"):
            shmbridge.connect(f"aot://{tmp_path}/m.so?weights={tmp_path}/{file}")
    with pytest.raises(InvalidError, match="say weights=FILE in the URL"):
        shmbridge.connect(f"aot://{tmp_path}/m.so")


def test_weights_given_to_a_model_that_has_them(models):
    with pytest.raises(InvalidError, match="its weights are inside: leave weights=FILE out"):
        shmbridge.connect(f"aot://{models}/perceptron.so?weights=x")


def test_large_weights_inside(tmp_path):
    """They lie in the library as bytes, not as C: the compiler would take minutes."""
    weights = np.random.default_rng(3).normal(size=(400, 500)).astype(np.float32)
    model = onnx_models.save(
        tmp_path / "big.onnx",
        [node("MatMul", "x w", "y")],
        [("x", T.FLOAT, [1, 400])],
        [("y", T.FLOAT, [1, 500])],
        {"w": weights},
    )
    compile(model, "-o", tmp_path / "big.so", "--keep", tmp_path / "kept")
    assert (
        (tmp_path / "big.so").stat().st_size
        > weights.nbytes
        > 10 * (tmp_path / "kept" / "model.c").stat().st_size
    )
    x = np.ones((1, 400), np.float32)
    with shmbridge.connect(f"aot://{tmp_path}/big.so") as runner:
        assert np.allclose(runner.evaluate({"x": x}), x @ weights, rtol=1e-3, atol=1e-3)


def test_threads_at_once(tmp_path):
    """The generated code keeps a sequence in static memory: each thread must have its own."""
    nodes = [
        node("Neg", "x", "n"),
        node("SequenceConstruct", "x n", "pair"),
        node("SequenceAt", "pair one", "all"),
        node("MatMul", "all w", "y"),
    ]
    rng = np.random.default_rng(4)
    model = onnx_models.save(
        tmp_path / "m.onnx",
        nodes,
        [("x", T.FLOAT, [32, 500])],
        [("y", T.FLOAT, [32, 3])],
        {"one": np.int64(1), "w": rng.normal(size=(500, 3)).astype(np.float32)},
    )
    words = [
        sys.executable,
        "-P",
        "-m",
        "shmbridge.cli",
        "compile",
        model,
        "-o",
        tmp_path / "m.so",
        "--keep",
        tmp_path / "kept",
    ]
    subprocess.run(
        words, check=True
    )  # with the generator in a process of its own, as users have it
    assert "  static _Thread_local " in (tmp_path / "kept" / "model.c").read_text()
    xs = [rng.normal(size=(32, 500)).astype(np.float32) for _ in range(6)]
    right, wrong = [expected(model, x=x)[0] for x in xs], []

    def ask(index):
        with shmbridge.connect(f"aot://{tmp_path}/m.so") as runner:
            for _ in range(200):
                if not np.allclose(
                    runner.evaluate({"x": xs[index]}), right[index], rtol=1e-3, atol=1e-2
                ):
                    wrong.append(index)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong


def test_two_agents(models, tmp_path):
    model = onnx_models.two_minus(tmp_path / "two.onnx", 30)
    compile(model, "-o", tmp_path / "two.so")
    with shmbridge.connect(
        f"aot://?agent.a={models}/perceptron.so&agent.b={tmp_path}/two.so"
    ) as runner:
        x = np.arange(30, dtype=np.float32)
        assert np.allclose(
            runner.evaluate({"x": x, "agent": "a"}),
            expected(models / "perceptron.onnx", x=x[None])[0],
            rtol=1e-4,
        )
        assert runner.evaluate({"x": x, "agent": "b"}) == 0
        with pytest.raises(MismatchError, match="agents: a, b"):
            runner.evaluate({"x": x, "agent": "c"})


def test_sizes_given(tmp_path):
    nodes = [node("ArgMax", "x", "y", axis=1, keepdims=0)]
    model = onnx_models.save(
        tmp_path / "m.onnx", nodes, [("x", T.FLOAT, ["n", "k"])], [("y", T.INT64, ["n"])]
    )
    said = compile(model, "-o", tmp_path / "m.so", code=1)
    assert "use onnx://" in said and "--dim NAME=SIZE" in said and not (tmp_path / "m.so").exists()
    compile(model, "-o", tmp_path / "m.so", "--dim", "n=2", "--dim", "k=5")
    with shmbridge.connect(f"aot://{tmp_path}/m.so") as runner:
        assert list(runner.evaluate({"x": np.eye(5, dtype=np.float32)[3:]})) == [3, 4]


def test_what_cannot_be_compiled(tmp_path):
    def words(name, nodes, inputs, outputs, *more):
        return compile(
            onnx_models.save(tmp_path / name, nodes, inputs, outputs),
            "-o",
            tmp_path / "m.so",
            *more,
            code=1,
        )

    assert "use onnx://" in words(
        "a.onnx", [node("NonZero", "x", "y")], [("x", T.FLOAT, [9])], [("y", T.INT64, [1, "k"])]
    )
    assert "use onnx://" in words(
        "b.onnx", [node("Identity", "x", "y")], [("x", T.STRING, [9])], [("y", T.STRING, [9])]
    )
    (tmp_path / "c.onnx").write_bytes(b"no model")
    assert "Error" in compile(tmp_path / "c.onnx", "-o", tmp_path / "m.so", code=1)
    (tmp_path / "d.bin").write_bytes(b"")
    assert "say --from onnx|tensorflow|torch" in compile(
        tmp_path / "d.bin", "-o", tmp_path / "m.so", code=1
    )
    assert "expected -o FILE" in compile(tmp_path / "c.onnx", code=2)
    assert "made by shmbridge compile" in compile("--show", tmp_path / "c.onnx", code=1)
    assert not (tmp_path / "m.so").exists()


def test_where_the_result_cannot_go_is_said_before_anything_is_compiled(tmp_path):
    model = Path(onnx_models.two_minus(tmp_path / "m.onnx"))
    before = model.read_bytes()
    assert "expected a folder" in compile(model, "-o", tmp_path / "none" / "m.so", code=1)
    assert "expected a folder" in compile(model, "--weights", tmp_path / "none" / "m.bin", code=1)
    assert "would be overwritten" in compile(model, "-o", model, code=1)
    assert "would be overwritten" in compile(
        model, "-o", tmp_path / "m.so", "--weights", model, code=1
    )
    assert "different files" in compile(
        model, "-o", tmp_path / "m.so", "--weights", tmp_path / "m.so", code=1
    )
    assert [file.name for file in tmp_path.iterdir()] == ["m.onnx"] and model.read_bytes() == before


def test_an_option_that_is_for_other_models_is_refused(tmp_path):
    model = onnx_models.two_minus(tmp_path / "m.onnx")
    assert "--signature is for SavedModels" in compile(
        model, "-o", tmp_path / "m.so", "--signature", "s", code=2
    )
    (tmp_path / "m.pt2").write_bytes(b"")
    assert "--dim is for" in compile(
        tmp_path / "m.pt2", "-o", tmp_path / "m.so", "--dim", "n=2", code=2
    )


def test_a_model_too_large_to_be_asked_is_not_checked(tmp_path):
    n = 1 << 21
    model = onnx_models.save(
        tmp_path / "m.onnx",
        [node("ReduceMax", "x", "y", keepdims=0)],
        [("x", T.FLOAT, [n, n])],
        [("y", T.FLOAT, [])],
    )
    assert "not checked: " in compile(model, "-o", tmp_path / "m.so")


def test_a_model_of_logarithms_is_compared_where_they_are_numbers(tmp_path):
    """The demo's, whose log(1 + x) is none below -1."""
    from shmbridge.demo.model import advise, onnx_bytes

    (tmp_path / "model.onnx").write_bytes(onnx_bytes())
    words = [sys.executable, "-P", "-m", "shmbridge.cli", "compile", "model.onnx", "-o", "m.so"]
    said = subprocess.run(words, cwd=tmp_path, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert "that are not negative; else" in said
    features = np.arange(16, dtype=np.float32)
    with shmbridge.connect(f"aot://{tmp_path}/m.so") as runner:
        assert runner.evaluate({"features": features}) == advise({"features": features})


def test_the_c_compiler_fails(tmp_path, monkeypatch):
    (tmp_path / "cc").write_text("#!/bin/sh\necho this compiler is out of order; exit 3\n")
    (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("CC", f"{tmp_path}/cc -x")
    model = onnx_models.two_minus(tmp_path / "m.onnx")
    said = compile(model, "-o", tmp_path / "m.so", "-v", code=1)
    assert "status 3" in said and "out of order" in said and "-m emx_onnx_cgen compile" in said
    monkeypatch.setenv("CC", "no-such-compiler")
    assert "install gcc" in compile(model, "-o", tmp_path / "m.so", code=1)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["cc", "m.onnx"]


def test_a_model_that_differs_is_not_kept(tmp_path, monkeypatch):
    """Here the reference is another model."""
    from shmbridge.compile import onnx as source

    model = onnx_models.perceptron(tmp_path / "m.onnx", seed=0)
    other = Path(onnx_models.perceptron(tmp_path / "o.onnx", seed=1))
    ask = source._ask
    monkeypatch.setattr(source, "_ask", lambda _, arrays: ask(other, arrays))
    assert "differs from ONNX Runtime by" in compile(model, "-o", tmp_path / "m.so", code=1)
    assert not (tmp_path / "m.so").exists()
    compile(model, "-o", tmp_path / "m.so", "--no-check")
    assert (tmp_path / "m.so").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_nothing(number, tmp_path):
    (tmp_path / "cc").write_text(
        f"#!/bin/sh\necho $$ > {tmp_path}/pid && mv {tmp_path}/pid {tmp_path}/started\nexec sleep 60\n"
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
    words = [
        "cc",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "-shared",
        "-fPIC",
        str(source),
        *_config.cflags().split(),
        "-o",
        str(library),
    ]
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
    assert compile("--show", library) == "input  features: float32[16]\noutput inline: int64[]\n"


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
    foreign[18:20] = (
        b"\x2a\x00" if foreign[18:20] != b"\x2a\x00" else b"\x3e\x00"
    )  # e_machine: a SuperH
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
