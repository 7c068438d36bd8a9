"""tflite://: LiteRT in the compiler's process gives what the wheel's own Interpreter gives, from C,
C++ and Python."""

import os
import subprocess

import numpy as np
import pytest

import shmbridge
from shmbridge import DeadlineError, InvalidError, MismatchError, ModelError, _config
from shmbridge._runner import urls

interpreter = pytest.importorskip(
    "ai_edge_litert.interpreter", reason="LiteRT (pip install 'shmbridge[tflite]') is not there"
)
from support import tflite_models as models  # noqa: E402

X = np.array([[4, -1, 7, 0.5]], np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tflite")


@pytest.fixture(scope="module")
def any_size(folder):
    return models.two_minus_x(folder / "any.tflite")


@pytest.fixture(scope="module")
def mlp(folder):
    return models.mlp(folder / "mlp.tflite")


def url(file, **options):
    text = "&".join(f"{name.replace('__', '.')}={value}" for name, value in options.items())
    return urls.resolve(f"tflite://{file}" + (f"?{text}" if text else ""))


def expected(file, **features):
    """What the wheel's Interpreter gives, by the names of the signature's outputs."""
    run = interpreter.Interpreter(str(file), num_threads=1)
    for detail in run.get_input_details():
        value = next(
            v
            for name, v in features.items()
            if f"_{name}:" in detail["name"] or name == detail["name"]
        )
        run.resize_tensor_input(detail["index"], value.shape)
    return run.get_signature_runner()(**features)


@pytest.mark.parametrize("kernels", ["xnnpack", "builtin"])
def test_python_gets_what_the_interpreter_gives(mlp, kernels):
    x = np.random.default_rng(1).normal(size=(1, 300)).astype(np.float32)
    with shmbridge.connect(url(mlp, kernels=kernels)) as runner:
        advice = runner.evaluate({"features": x})
        assert advice.dtype == np.float32 and advice.shape == (1, 2)
        wanted = expected(mlp, features=x)["score"]
        assert (
            np.array_equal(advice, wanted)
            if kernels == "xnnpack"
            else np.allclose(advice, wanted, rtol=1e-4)
        )


def test_features_have_the_names_of_the_signature_and_else_of_the_tensors(any_size, folder):
    bare = models.two_minus_x(folder / "bare.tflite", 4, signature=False)
    with shmbridge.connect(url(bare)) as runner:
        runner.evaluate({"serving_default_x:0": X})
        assert list(runner.advice) == ["StatefulPartitionedCall:0", "StatefulPartitionedCall:1"]
        with pytest.raises(
            MismatchError, match=r'expects "serving_default_x:0", float32\[1,4\]; found x'
        ):
            runner.evaluate({"x": X})
    with shmbridge.connect(url(any_size)) as runner:
        runner.evaluate({"unused": "text", "x": X})
        assert list(runner.advice) == ["y", "best"]


@pytest.mark.parametrize(("key", "wanted"), [("plus", X + 1), ("minus", X - 1)])
def test_each_signature_runs_its_own_graph(key, wanted, folder):
    with shmbridge.connect(url(models.two_signatures(folder / "two.tflite"), signature=key)) as it:
        assert np.array_equal(it.evaluate({"x": X}), wanted)


def test_a_size_that_the_model_leaves_open_may_change(any_size):
    with shmbridge.connect(url(any_size)) as runner:
        for n in [4, 1, 4, 1000, 3]:
            x = np.arange(n, dtype=np.float32)[None]
            advice = runner.evaluate({"x": x})
            assert np.array_equal(advice["y"], 2 - x) and advice["best"] == [0]
            assert runner.evaluate({"x": x[0]})["y"].shape == (n,)  # as one row


def test_sizes_that_litert_refuses_are_refused_each_time(any_size):
    with shmbridge.connect(url(any_size)) as runner:
        runner.evaluate({"x": X})
        said = set()
        for _ in range(3):
            with pytest.raises(ModelError) as error:
                runner.evaluate({"x": np.zeros((1, 0), np.float32)})
            said.add(str(error.value))
        assert len(said) == 1
        assert np.array_equal(runner.evaluate({"x": X})["y"], 2 - X)


def test_bound_memory_is_what_the_model_reads(any_size, c_runner):
    runner = c_runner(url(any_size))
    runner.do("bind", "x", 11, 2, 1, 4)
    for value in [X, X + 1]:
        runner.do("write", "x", value.tobytes().hex())
        assert (2 - value).tobytes().hex() in runner.do("evaluate", 0)


def test_a_file_that_is_no_model_is_an_error(folder, mlp):
    for name, content, says in [
        ("empty", b"", "cannot be read: the file is empty"),
        (
            "text",
            b"no model " * 100,
            "expected a TFLite model, found something else, or part of one",
        ),
        *[
            (f"part{n}", mlp.read_bytes()[:n], "expected a TFLite model")
            for n in [10, 100, 1000, 40_000]
        ],
    ]:
        file = folder / f"{name}.tflite"
        file.write_bytes(content)
        with pytest.raises(InvalidError, match=says):
            shmbridge.connect(url(file))
    with pytest.raises(InvalidError, match="nowhere.tflite cannot be read: No such file"):
        shmbridge.connect(url(folder / "nowhere.tflite"))


def test_a_model_that_cannot_run_is_an_error(folder):
    g = models.Graph()
    x, y = g.tensor("x", "float32", [4]), g.tensor("y", "float32", [4])
    g.operator("CUSTOM", [x], [y])
    g.model.operatorCodes[-1].customCode = b"NobodysOperator"
    with pytest.raises(InvalidError, match="cannot run it"):
        shmbridge.connect(url(g.write(folder / "custom.tflite", {"x": x}, {"y": y})))


def test_a_failing_model_says_what_litert_says_and_goes_on(folder):
    g = models.Graph()
    x, i, y = (
        g.tensor("x", "float32", [4]),
        g.tensor("i", "int32", [1]),
        g.tensor("y", "float32", [1]),
    )
    g.operator("GATHER", [x, i], [y])
    with shmbridge.connect(
        url(g.write(folder / "gather.tflite", {"x": x, "i": i}, {"y": y}))
    ) as runner:
        with pytest.raises(ModelError, match="gather index out of bounds"):
            runner.evaluate({"x": X[0], "i": np.array([9], np.int32)})
        assert runner.evaluate({"x": X[0], "i": np.array([2], np.int32)}) == [7]


def test_a_deadline_ends_the_model_between_two_operators(folder):
    deep = models.mlp(folder / "deep.tflite", (300,) * 20)
    with shmbridge.connect(url(deep, kernels="builtin")) as runner:
        runner.set_deadline(1e-9)
        with pytest.raises(DeadlineError, match="no advice within the deadline"):
            runner.evaluate({"features": np.ones(300, np.float32)})
        runner.set_deadline(None)
        assert runner.evaluate({"features": np.ones(300, np.float32)}).shape == (300,)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"threads": 0}, "threads=0: expected a number from 1 to 9999"),
        ({"threads": "two"}, "threads=two: expected a number"),
        ({"kernels": "fast"}, "kernels=fast: expected xnnpack or builtin"),
        ({"signature": "train"}, 'has no signature "train": expected one of serving_default'),
        (
            {"library": "/nowhere.so"},
            "LiteRT does not load: install ai-edge-litert 2.2 .*looked at /nowhere.so",
        ),
        (
            {"speed": 9},
            'unknown option "speed" in the URL: expected threads, kernels, signature, library, '
            "agent.NAME, connect",
        ),
    ],
)
def test_wrong_options_are_errors(any_size, options, says):
    with pytest.raises(InvalidError, match=says):
        shmbridge.connect(url(any_size, **options))


def test_a_library_that_is_another_is_an_error(any_size):
    with pytest.raises(
        InvalidError,
        match="ai-edge-litert 2.2 or later: expected a library that exports kLiteRtRuntimeBuiltin",
    ):
        shmbridge.connect(url(any_size, library=_config.library()))


def test_threads_with_a_runner_each_share_a_file(mlp, in_thread):
    random = np.random.default_rng(2)
    questions = random.normal(size=(4, 200, 300)).astype(np.float32)

    def ask(mine, threads=2):
        with shmbridge.connect(url(mlp, threads=threads)) as runner:
            return [runner.evaluate({"features": x}) for x in mine]

    together = [in_thread(ask, mine) for mine in questions]
    alone = [ask(mine, 1) for mine in questions]
    assert np.array_equal([call.result() for call in together], alone)


def test_nothing_is_printed_with_builtin_kernels(any_size, python):
    process = python(
        "import sys, numpy, shmbridge\nwith shmbridge.connect(sys.argv[1]) as r: "
        "print(r.evaluate({'x': numpy.ones(3, 'f')})['best'])",
        url(any_size, kernels="builtin"),
        stderr=subprocess.STDOUT,
    )
    assert process.end() == (0, "0")


def test_the_environment_names_the_library_where_the_url_does_not(any_size, c_runner):
    library = url(any_size).partition("library=")[2]
    plain = f"tflite://{any_size}"
    runner = c_runner(env={**os.environ, "SHMBRIDGE_LITERT": library})
    assert runner.do("open", plain).startswith("0")
    runner = c_runner(env={**os.environ, "SHMBRIDGE_LITERT": "/nowhere/libLiteRt.so"})
    assert "looked at /nowhere/libLiteRt.so" in runner.do("open", plain)


def test_a_forked_child_leaves_the_model_alone(any_size, python):
    process = python(
        """
        import os, sys, numpy, shmbridge
        runner, x = shmbridge.connect(sys.argv[1]), {"x": numpy.ones(3, "f")}
        runner.evaluate(x)
        if not os.fork():
            try: runner.evaluate(x)
            except shmbridge.ForkedError: runner.close(); os._exit(7)
            os._exit(1)
        print(os.waitstatus_to_exitcode(os.wait()[1]), runner.evaluate(x)["best"])
        """,
        url(any_size, threads=4),
        stderr=subprocess.DEVNULL,
    )
    assert process.end() == (0, "7 0")
