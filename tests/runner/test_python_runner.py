"""python://MODULE:FUNCTION in Python: a function of this process behind a URL."""

import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest

from shmbridge import DeadlineError, InvalidError, MismatchError, ModelError, connect

pytestmark = pytest.mark.timeout(60)

MODEL = """
import threading
import time
from shmbridge import MismatchError

go, entered = threading.Event(), threading.Event()
closed = []

def double(features):
    return 2 * features["x"]

def times(features, *, factor):
    return int(factor) * features["x"]

def mismatch(features):
    raise MismatchError("no such feature")

def waits(features):
    entered.set()
    if features["x"] == 1:
        # go.wait() misses a signal that comes just before it sleeps, and sleeps on
        while not go.is_set():
            time.sleep(0.01)
    return 2 * features["x"]

late = []

def reads_late(features):
    entered.set()
    go.wait()
    late.append(dict(features))
    return 1

class Policy:
    def __init__(self, weights="1"):
        self.weights, self.asked = int(weights), 0

    def __call__(self, features):
        self.asked += 1
        return {"advice": self.weights * features["x"], "asked": self.asked}

    def close(self):
        closed.append(self.asked)

    advise = staticmethod(lambda features: 7)

async def asks_later(features):
    return 1

number = 3
"""


@pytest.fixture
def model(tmp_path, monkeypatch):
    """model("double"): the URL of that function; model.module is where it lives."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "a_model.py").write_text(MODEL)

    def url(place, **options):
        return f"python://a_model:{place}?path={tmp_path}" + "".join(
            f"&{k}={v}" for k, v in options.items()
        )

    yield url
    sys.modules.pop("a_model", None)


def its(name):
    return getattr(sys.modules["a_model"], name)


def test_a_function_answers(model):
    with connect(model("double")) as runner:
        assert runner.evaluate({"x": 4}) == 8
        assert runner.evaluate({"x": np.arange(3)}).tolist() == [0, 2, 4]
        assert runner.evaluate({"x": 4}, dtype="float32") == 8.0


def test_a_third_slash_is_as_well(model):
    with connect(model("double").replace("python://", "python:///")) as runner:
        assert runner.evaluate({"x": 4}) == 8


def test_options_are_keyword_arguments_of_the_function(model):
    with connect(model("times", factor=5)) as runner:
        assert runner.evaluate({"x": 4}) == 20
    for options in {}, {"faktor": 5}:
        with pytest.raises(
            InvalidError, match="keyword arguments.*factor|keyword arguments.*faktor"
        ):
            connect(model("times", **options)).close()


def test_a_class_makes_an_object_for_each_runner_and_is_closed(model):
    with connect(model("Policy", weights=3)) as first, connect(model("Policy")) as second:
        assert [first.evaluate({"x": 4}) for _ in range(2)] == [
            {"advice": 12, "asked": 1},
            {"advice": 12, "asked": 2},
        ]
        assert second.evaluate({"x": 4}) == {"advice": 4, "asked": 1}
    assert its("closed") == [1, 2]
    with pytest.raises(InvalidError, match="keyword arguments"):
        connect(model("Policy", waits=3))


def test_a_file_goes_before_a_compiled_library_of_its_name(model, tmp_path):
    (tmp_path / "a_model.so").write_text("what `shmbridge compile -o a_model.so` writes")
    with connect(model("double")) as runner:
        assert runner.evaluate({"x": 4}) == 8


def test_a_dotted_name_goes_deeper(model):
    with connect(model("Policy.advise")) as runner:
        assert runner.evaluate({}) == 7


@pytest.mark.parametrize(
    "place, says",
    [
        ("a_model:nothing", "a_model:nothing: AttributeError"),
        ("a_model:number", "expected a function, found int"),
        ("a_model:asks_later", "found an async one"),
        ("no_such_module:f", "No module named 'no_such_module' in .*, nor where Python looks"),
        *((place, "expected MODULE:FUNCTION") for place in ("a_model", "", "a_model:")),
    ],
)
def test_what_is_no_function_is_an_error(model, place, says):
    with pytest.raises(InvalidError, match=says):
        connect(model("double").replace("a_model:double", place))


def test_a_function_in_a_file_is_found_from_everywhere_and_executed_once(tmp_path):
    (tmp_path / "link").symlink_to("two")
    for folder, number in (("one", 1), ("two", 2)):  # of the same name, and each with a neighbour
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"neighbour_{folder}.py").write_text(f"number = {number}\n")
        (tmp_path / folder / "my-model.py").write_text(
            f"from neighbour_{folder} import number\ndef add(question):\n    global number\n"
            "    number += 10\n    return question['x'] + number\n"
        )
    asked = [f"python://{tmp_path}/{folder}/my-model.py:add" for folder in ("one", "two", "link")]
    with ExitStack() as stack:
        assert [stack.enter_context(connect(url)).evaluate({"x": 10}) for url in asked] == [
            21,
            22,
            32,
        ]


def test_a_second_thread_waits_until_the_file_has_been_executed(tmp_path):
    (tmp_path / "slow_file.py").write_text(
        "import time\ntime.sleep(0.2)\ndef same(question):\n    return question['x']\n"
    )
    with ThreadPoolExecutor(2) as pool:
        for runner in pool.map(connect, 2 * [f"python://{tmp_path}/slow_file.py:same"]):
            with runner:
                assert runner.evaluate({"x": 7}) == 7


@pytest.mark.parametrize("place", ["/no/such/folder/model.py:f", "/etc/passwd:f"])
def test_what_is_no_file_of_python_is_an_error(place):
    with pytest.raises(InvalidError, match=f"{place}: "):
        connect(f"python://{place}")


def test_a_module_that_does_not_load_says_where(model, tmp_path):
    (tmp_path / "broken_model.py").write_text("import sys\nsys.nothing\n")
    with pytest.raises(InvalidError, match=r"AttributeError.*broken_model.py:2"):
        connect(model("double").replace("a_model", "broken_model"))


def test_the_current_directory_is_searched_only_where_it_is_named(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(tmp_path))])
    with pytest.raises(InvalidError, match="path=DIR"):
        connect("python://a_model:double")
    with connect("python://a_model:double?path=.") as runner:
        assert runner.evaluate({"x": 4}) == 8


def test_a_models_errors_keep_their_status_and_text(model):
    with (
        connect(model("mismatch")) as runner,
        pytest.raises(MismatchError, match="no such feature"),
    ):
        runner.evaluate({"x": 1})
    with connect(model("double")) as runner, pytest.raises(ModelError, match="KeyError: 'x'"):
        runner.evaluate({"y": 1})


def test_a_late_answer_is_dropped_and_a_new_deadline_asks_again(model):
    with connect(model("waits", deadline=0.02)) as runner:
        for _ in range(2):
            with pytest.raises(DeadlineError, match="within the deadline of 0.02 s"):
                runner.evaluate({"x": 1})
            with pytest.raises(DeadlineError, match="not asked: an earlier answer"):
                runner.evaluate({"x": 1})
            runner.set_deadline(0.02)
        its("go").set()
        runner.set_deadline(30)
        assert runner.evaluate({"x": 2}) == 4
        runner.set_deadline(None)
        assert runner.evaluate({"x": 3}) == 6


def test_a_late_function_reads_the_features_of_its_own_question(model):
    with connect(model("reads_late", deadline=0.1)) as runner:
        with pytest.raises(DeadlineError):
            runner.evaluate({"x": np.full(1000, 1), "name": "f"})
        its("go").set()
        runner.set_deadline(30)
        assert runner.evaluate({"x": np.full(1000, 2), "name": "g"}) == 1
    first = its("late")[0]
    assert first["name"] == "f" and (first["x"] == 1).all()


def test_errors_pass_through_a_deadline(model):
    with connect(model("mismatch", deadline=30)) as runner:
        for _ in range(2):
            with pytest.raises(MismatchError, match="no such feature"):
                runner.evaluate({"x": 1})


def test_a_closed_runner_leaves_no_thread(model):
    before = set(threading.enumerate())
    with connect(model("double", deadline=30)) as runner:
        assert runner.evaluate({"x": 1}) == 2
        (worker,) = set(threading.enumerate()) - before
    worker.join(30)
    assert not worker.is_alive()


@pytest.mark.parametrize("options", [{"deadline": "inf"}, {}], ids=["no-deadline", "deadline"])
def test_ctrl_c_ends_a_question(model, options):
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with connect(model("waits", **options)) as runner:
            main = threading.main_thread().ident
            stop = threading.Thread(
                target=lambda: its("entered").wait() and signal.pthread_kill(main, signal.SIGINT)
            )
            stop.start()
            with pytest.raises(KeyboardInterrupt):
                runner.evaluate({"x": 1})
            stop.join()
            its("go").set()
            assert runner.evaluate({"x": 2}) == 4
    finally:
        signal.signal(signal.SIGINT, previous)
