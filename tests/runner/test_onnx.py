"""onnx://: an ONNX file in the runner's process computes what ONNX Runtime's own Python API
computes, and says what it expects."""

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from support.processes import printed

pytest.importorskip("onnx", reason="the models are made with it")
onnxruntime = pytest.importorskip("onnxruntime", reason="it is what runs them")

from onnx import TensorProto as T  # noqa: E402
from onnx import helper  # noqa: E402
from support import onnx_models as models  # noqa: E402
from support.onnx_models import node, save  # noqa: E402

from shmbridge import InvalidError, MismatchError, ModelError, TensorSpec, connect  # noqa: E402

LIBRARY = next(Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*"))
X = np.arange(8, dtype=np.float32)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.onnx"


def reference(path, features):
    """What ONNX Runtime's own Python API says: all outputs by name."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, features), strict=True))


def same(found, expected):
    found = found if isinstance(found, dict) else {next(iter(expected)): found}
    assert list(found) == list(expected)
    for name, value in expected.items():
        # Of rank 0 is a Python number.
        array = np.asarray(found[name], value.dtype if not value.shape else None)
        assert array.dtype == value.dtype and array.shape == value.shape
        assert np.array_equal(array, value)


# ---- Values ----


def test_a_feature_without_the_leading_dim_gives_advice_without_it(path):
    file = models.perceptron(path)
    x = np.linspace(-1, 1, 30, dtype=np.float32)
    with connect(f"onnx://{file}") as runner:
        assert np.array_equal(
            runner.evaluate({"x": x}), reference(file, {"x": x[None]})["advice"][0]
        )
        same(runner.evaluate({"x": x[None]}), reference(file, {"x": x[None]}))


def test_a_policy_of_mlgo_gets_the_compilers_features_and_zeros_for_its_trainers_inputs(path):
    trainer = [("step_type", T.INT32, [1]), ("reward", T.FLOAT, [1]), ("discount", T.FLOAT, [-1])]
    nodes = [
        node("Cast", "step_type", "step", to=T.FLOAT),
        node("Sum", "action_x action_y step reward discount", "advice"),
    ]
    inputs = [("action_x", T.FLOAT, [1]), ("action_y", T.FLOAT, [1]), *trainer]
    file = save(path, nodes, inputs, [("advice", T.FLOAT, [1])])
    one, two = np.ones(1, np.float32), np.full(1, 2, np.float32)
    with connect(f"onnx://{file}") as runner:
        same(runner.evaluate({"x": one, "action_y": two}), {"advice": np.full(1, 3, np.float32)})
        same(runner.evaluate({"x": two, "y": two, "reward": one}), {"advice": np.full(1, 5, "f")})
        with pytest.raises(MismatchError, match='expects "action_y", float32'):
            runner.evaluate({"x": one})


def test_advice_whose_size_depends_on_the_features(path):
    file = save(
        path,
        [node("NonZero", "x", "advice")],
        [("x", T.FLOAT, [8])],
        [("advice", T.INT64, [1, "found"])],
    )
    with connect(f"onnx://{file}") as runner:
        for x in (X, X - 3, X * 0, X, X, X - 3, X * 0):
            same(runner.evaluate({"x": x}), reference(file, {"x": x}))


def test_advice_of_another_size_than_the_model_declares(path):
    file = save(
        path,
        [node("Concat", "x x", "advice", axis=0)],
        [("x", T.FLOAT, ["n"])],
        [("advice", T.FLOAT, ["n"])],
    )
    with connect(f"onnx://{file}") as runner:
        for x in (X, X, X[:3], X):
            assert np.array_equal(runner.evaluate({"x": x}), np.concatenate([x, x]))


def test_inputs_with_initializers_are_not_required(path):
    file = save(
        path,
        [node("Add", "x bias", "advice")],
        [("x", T.FLOAT, [8]), ("bias", T.FLOAT, [8])],
        [("advice", T.FLOAT, [8])],
        {"bias": np.ones(8, np.float32)},
    )
    with connect(f"onnx://{file}") as runner:
        same(runner.evaluate({"x": X, "more": np.arange(3)}), reference(file, {"x": X}))


def test_bound_features_from_c(path, c_runner):
    runner = c_runner(f"onnx://{models.two_minus(path)}")
    runner.do("bind x 11 1 8")
    for shift in (0, 3, 5):
        runner.do("write x", np.roll(X, shift).tobytes().hex())
        assert runner.do("i64") == f"0 {shift}"


def test_several_agents_behind_one_runner(tmp_path):
    first, second = models.two_minus(tmp_path / "a.onnx"), models.perceptron(tmp_path / "b.onnx")
    x = np.ones((1, 30), np.float32)
    with connect(f"onnx://?agent.evict={first}&agent.priority={second}") as runner:
        assert runner.expected() is None and runner.expected("other") is None
        assert runner.expected("priority") == {"x": TensorSpec("x", np.float32, (None, 30))}
        for _ in range(3):
            assert runner.evaluate({"agent": "evict", "x": X}) == 0
            same(runner.evaluate({"agent": "priority", "x": x}), reference(second, {"x": x}))
        with pytest.raises(MismatchError, match="evict, priority"):
            runner.evaluate({"agent": "other", "x": X})


# ---- What does not fit ----


def test_features_that_do_not_fit_are_told_what_the_model_expects(path):
    file = models.perceptron(path)
    with connect(f"onnx://{file}") as runner:
        for features, expected, found in (
            ({}, r'"x", float32\[\?,30\]', "no features"),
            ({f"feature_{i}": X for i in range(38)}, '"x"', "feature_37"),
            ({"y": X}, r'"x", float32\[\?,30\]', "found y"),
            ({"x": np.zeros((1, 30))}, r"float32\[\?,30\]", r"float64\[1,30\]"),
            ({"x": np.zeros((2, 31), np.float32)}, r"float32\[\?,30\]", r"float32\[2,31\]"),
            ({"x": "text"}, r"float32\[\?,30\]", "text or a list"),
        ):
            with pytest.raises(MismatchError, match=f"{expected}.*{found}"):
                runner.evaluate(features)
        x = np.ones((2, 30), np.float32)
        same(runner.evaluate({"x": x}), reference(file, {"x": x}))


def test_sizes_that_changed_in_a_request_that_did_not_fit_are_taken_over_all_the_same(path):
    inputs, outputs = [("a", T.FLOAT, ["n"]), ("b", T.FLOAT, [2])], [("advice", T.FLOAT, ["m"])]
    file = save(path, [node("Concat", "a b", "advice", axis=0)], inputs, outputs)
    a, b = np.arange(64, dtype=np.float32), np.array([8, 9], np.float32)
    with connect(f"onnx://{file}") as runner:
        same(runner.evaluate({"b": b, "a": a[:3]}), reference(file, {"a": a[:3], "b": b}))
        with pytest.raises(MismatchError):
            runner.evaluate({"b": a[:3], "a": a})
        same(runner.evaluate({"b": b, "a": a}), reference(file, {"a": a, "b": b}))


@pytest.mark.parametrize(
    ("port", "says"),
    [
        (helper.make_tensor_value_info("odd", T.STRING, [1]), "element type 8"),
        (helper.make_tensor_sequence_value_info("odd", T.FLOAT, None), "is no tensor"),
        (helper.make_tensor_value_info("odd", T.FLOAT8E4M3FN, [1]), "element type 17"),
    ],
)
def test_inputs_that_no_feature_can_be_are_named(path, port, says):
    file = save(
        path,
        [node("Identity", "x", "advice"), node("Identity", "odd", "o")],
        [("x", T.FLOAT, [8]), port],
        [("advice", T.FLOAT, [8])],
    )
    if says == "element type 17":  # an 8-bit float: opset 17 has none
        model = models.onnx.load(file)
        model.opset_import[0].version = 19
        models.onnx.save(model, file)
    with pytest.raises(InvalidError, match=f'the input "odd" .*{says}'):
        connect(f"onnx://{file}")


def test_a_sparse_tensor_is_refused_when_the_model_is_opened(path):
    nodes = [node("SparseToDenseMatMul", "odd x", "advice", domain="com.microsoft")]
    odd, dense = helper.make_sparse_tensor_value_info("odd", T.FLOAT, [8, 8]), (T.FLOAT, [8, 8])
    file = save(path, nodes, [odd, ("x", *dense)], [("advice", *dense)])
    with pytest.raises(InvalidError, match='the input "odd" is no tensor'):
        connect(f"onnx://{file}")


def test_maps_and_ranks_above_eight_are_refused(path):
    nodes = [node("ZipMap", "x", "advice", domain="ai.onnx.ml", classlabels_int64s=[0, 1])]
    of_maps = helper.make_sequence_type_proto(
        helper.make_map_type_proto(T.INT64, helper.make_tensor_type_proto(T.FLOAT, []))
    )
    file = save(path, nodes, [("x", T.FLOAT, [1, 2])], [helper.make_value_info("advice", of_maps)])
    with pytest.raises(InvalidError, match=r'the output "advice" is no tensor.*zipmap=False'):
        connect(f"onnx://{file}")
    with pytest.raises(InvalidError, match="at most 8 dims, found .* and 9"):
        connect(f"onnx://{models.identity(path, T.FLOAT, [1] * 9)}")


def test_advice_of_more_than_eight_dims_is_an_error_when_it_comes(path):
    inputs = [("x", T.FLOAT, [8]), ("dims", T.INT64, ["rank"])]
    advice = helper.make_tensor_value_info("advice", T.FLOAT, None)
    file = save(path, [node("Reshape", "x dims", "advice")], inputs, [advice])
    with connect(f"onnx://{file}") as runner:
        for rank in (8, 9, 8, 9):
            features = {"x": X, "dims": np.array([1] * (rank - 1) + [8])}
            if rank == 8:
                same(runner.evaluate(features), {"advice": X.reshape(features["dims"])})
                continue
            with pytest.raises(ModelError, match='"advice" has 9 dims: expected at most 8'):
                runner.evaluate(features)


def test_files_that_are_no_models(tmp_path):
    with pytest.raises(InvalidError, match="nowhere.onnx.* doesn't exist"):
        connect(f"onnx://{tmp_path}/nowhere.onnx")
    (tmp_path / "text.onnx").write_text("this is no model")
    with pytest.raises(InvalidError, match="text.onnx.*rotobuf"):
        connect(f"onnx://{tmp_path}/text.onnx")
    with pytest.raises(InvalidError, match="names no file"):
        connect("onnx://")


def test_a_model_that_fails_says_why_and_goes_on(path):
    gather = [node("Gather", "table x", "advice")]
    ports, first = ([("x", T.INT64, ["n"])], [("advice", T.INT64, ["n"])]), (1 << 24) - 3
    with connect(f"onnx://{save(path, gather, *ports, {'table': np.arange(5) + first})}") as runner:
        for _ in range(2):
            assert runner.evaluate({"x": np.array([3])}) == [1 << 24]
            with pytest.raises(ValueError, match="1 of the advice .*, 16777217 of"):
                runner.evaluate({"x": np.array([3, 4])}, dtype="float32")
            with pytest.raises(ModelError, match="out of data bounds"):
                runner.evaluate({"x": np.array([30])})


# ---- Options ----


@pytest.mark.parametrize(
    "options",
    [
        *("threads=2", "threads=0", "providers=CPUExecutionProvider", "providers=cpu"),
        f"library={LIBRARY}",
    ],
)
def test_options_leave_the_advice_as_it_is(path, options):
    with connect(f"onnx://{models.two_minus(path)}?{options}") as runner:
        assert runner.evaluate({"x": np.roll(X, 3)}) == 3


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("threads=many", "threads=many: expected 1 to 1024"),
        ("threads=-1", "expected 1 to 1024"),
        ("threads=", "expected 1 to 1024"),
        ("providers=cpu,Nobody", "providers=Nobody: .*provider"),
        ("library=/nowhere.so", r"ONNX Runtime does not load.*looked at /nowhere.so \(cannot open"),
        ("speed=9", "expected threads, providers, library"),
    ],
)
def test_options_that_make_no_sense(path, options, says):
    with pytest.raises(InvalidError, match=says):
        connect(f"onnx://{models.two_minus(path)}?{options}")


# ---- The library ----


def answers(program, url, **environment):
    """What scripted_runner.c answers to an open of the url and a question, with that environment
    alone."""
    lines = f"open {url}\nfeature x 11 1 8 {X.tobytes().hex()}\ni64\n"
    ended = printed([program], input=lines, env=environment, check=True)
    return ended.stdout.splitlines()


def test_c_finds_the_library_beside_its_own(path, scripted_runner):
    assert answers(scripted_runner, f"onnx://{models.two_minus(path)}")[::2] == ["0 ", "0 0"]


@pytest.fixture
def lonely_runner(scripted_runner, tmp_path):
    """The same program with libshmbridge.so outside of any Python."""
    from shmbridge import _config

    lonely = tmp_path / "lonely"
    lonely.mkdir()
    for file in (scripted_runner, _config.library()):
        shutil.copy(file, lonely)
    return lambda url, **environment: answers(
        lonely / scripted_runner.name, url, LD_LIBRARY_PATH=str(lonely), **environment
    )


def test_c_finds_the_library_by_environment_or_url_and_else_says_where_it_looked(
    path, lonely_runner, tmp_path
):
    url = f"onnx://{models.two_minus(path)}"
    assert lonely_runner(url, SHMBRIDGE_ONNXRUNTIME=str(LIBRARY))[2] == "0 0"
    assert lonely_runner(f"{url}?library={LIBRARY}")[2] == "0 0"
    environment = tmp_path / "venv"
    packages = environment / "lib" / "python3.99" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "onnxruntime").symlink_to(LIBRARY.parents[1])
    assert lonely_runner(url, VIRTUAL_ENV=str(environment))[2] == "0 0"
    (packages / "onnxruntime").unlink()
    opened, _, asked = lonely_runner(url, VIRTUAL_ENV=str(environment))
    if opened != "0 ":  # the system has one
        assert (
            "pip install 'shmbridge[onnx]'" in opened
            and f"{environment}/lib/python3*/site-packages/onnxruntime/capi" in opened
            and "libonnxruntime.so" in opened
        )
        assert opened == asked


def test_in_python_the_environment_goes_before_the_package(path):
    code = f"import shmbridge; shmbridge.connect('onnx://{models.two_minus(path)}')"
    environment = os.environ | {"SHMBRIDGE_ONNXRUNTIME": "/nowhere.so"}
    ended = printed([sys.executable, "-P", "-c", code], env=environment)
    assert "looked at /nowhere.so" in ended.stderr


def test_python_does_not_import_onnxruntime(path):
    code = (
        f"import sys, shmbridge; shmbridge.connect('onnx://{models.two_minus(path)}'); "
        "print('onnxruntime' in sys.modules)"
    )
    assert printed([sys.executable, "-P", "-c", code], check=True).stdout == "False\n"
