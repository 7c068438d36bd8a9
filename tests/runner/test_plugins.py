"""Plug-ins of others, found by their entry points: runner kinds behind a URL's scheme, and what
goes wrong in them."""

import math
import subprocess
import threading
import time

import numpy as np
import pytest

import shmbridge
from shmbridge import (
    DeadlineError,
    InterruptedCallError,
    InvalidError,
    ModelError,
    NoHostError,
    UnsupportedError,
)
from shmbridge._native import lib
from shmbridge._urls import plugins

MODULE = '''
import time

from shmbridge import BusyError, DeadlineError, InterruptedCallError, NoHostError
from shmbridge.runners import RunnerKind

opened, closed, kept, boom = [], [], [], []


class Kind(RunnerKind):
    """Where says what it does."""

    def __init__(self, where, by="1", why="no reason"):
        opened.append(where)
        self.where, self.by, self.why = where, int(by), why
        if where == "told_slow":
            self.deadline = 60
        if where == "nowhere":
            raise NoHostError("nobody is there")
        if where == "late" and opened.count("late") < 3:
            raise BusyError("not yet")
        if where == "ctrl-c at open":
            raise KeyboardInterrupt

    def evaluate(self, features, want, deadline):
        return getattr(self, self.where.replace(" ", "_"))(features, want, deadline)

    def add(self, features, want, deadline):
        return features["x"] + self.by

    late = add

    def wait(self, features, want, deadline):
        kept.append(features)
        while not self.interrupted():
            time.sleep(0.01)
        self.where = "add"
        raise InterruptedCallError("it was asked to")

    def keep(self, features, want, deadline):
        kept.append(features)
        return len(kept)

    def tell(self, features, want, deadline):
        return {"want": str(want), "deadline": -1.0 if deadline is None else deadline}

    told_slow = tell

    def half(self, features, want, deadline):
        return 0.5

    def raises(self, features, want, deadline):
        raise ValueError(self.why)

    def late_for_good(self, features, want, deadline):
        raise DeadlineError("it takes too long")

    def ctrl_c(self, features, want, deadline):
        raise KeyboardInterrupt

    def no_tensor(self, features, want, deadline):
        return {"good": 1, "the culprit": object()}

    def unprintable(self, features, want, deadline):
        class Unprintable(Exception):
            def __str__(self):
                raise RuntimeError
        raise Unprintable

    def close(self):
        closed.append(self.where)
        if self.where in boom:
            raise OSError("it does not close")
'''


class Distribution:
    """A third party's distribution in a directory of sys.path: a module and its entry points."""

    def __init__(self, path, module, source, **groups):
        (path / f"{module}.py").write_text(source)
        info = path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        lines = [f"[shmbridge.{group}]\n{entry}\n" for group, entry in groups.items()]
        (info / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory):
    path = tmp_path_factory.mktemp("site-packages")
    names = {"toy": "toy_plugins:Kind", "toymissing": "toy_plugins:Nothing"}
    names |= {"toybroken": "toy_broken:X", "toyint": "toy_plugins:opened"}
    entries = "\n".join(f"{name} = {place}" for name, place in names.items())
    Distribution(path, "toy_plugins", MODULE, runners=entries)
    (path / "toy_broken.py").write_text("import a_module_that_nobody_has")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(path)
        yield path


@pytest.fixture
def toy(installed):
    import toy_plugins

    for seen in (toy_plugins.opened, toy_plugins.closed, toy_plugins.kept, toy_plugins.boom):
        seen.clear()
    return toy_plugins


@pytest.fixture(autouse=True)
def nothing_is_printed(capfd):
    yield
    assert capfd.readouterr() == ("", "")


def test_a_runner_of_another_distribution_answers_by_its_scheme(toy):
    with shmbridge.connect("toy://add") as runner:
        assert runner.evaluate({"x": 2}) == 3
        assert runner.evaluate({"x": np.arange(3)}).tolist() == [1, 2, 3]
    assert toy.opened == toy.closed == ["add"]


def test_the_urls_options_are_the_constructors(toy, monkeypatch):
    monkeypatch.setenv("SHMBRIDGE_URL", "toy://add?by=10&deadline=2")
    with shmbridge.connect() as runner:
        assert runner.evaluate({"x": 2}) == 12
    with pytest.raises(InvalidError, match="TypeError: .*colour"):
        shmbridge.connect("toy://add?colour=red")


def test_features_that_a_plug_in_keeps_do_not_change(toy):
    with shmbridge.connect("toy://keep") as runner:
        for i in range(5):
            runner.evaluate({"x": np.full(1000, i)})
    assert [int(features["x"].sum()) for features in toy.kept] == [0, 1000, 2000, 3000, 4000]


def test_a_plug_in_is_told_the_wanted_dtype_and_the_deadline():
    with shmbridge.connect("toy://tell", deadline=2.5) as runner:
        assert runner.evaluate({}) == {"want": "None", "deadline": 2.5}
        runner.set_deadline(math.inf)
        assert runner.evaluate({})["deadline"] == -1
        runner.set_deadline(None)
        assert runner.evaluate({})["deadline"] == 10  # the default


def test_a_slow_plug_in_says_how_long_it_takes_unless_the_caller_does():
    with shmbridge.connect("toy://told_slow") as runner:
        assert runner.evaluate({})["deadline"] == 60
    with shmbridge.connect("toy://told_slow?deadline=5") as runner:
        assert runner.evaluate({})["deadline"] == 5


@pytest.mark.parametrize(
    ("where", "error", "says"),
    [
        ("raises?why=because", ModelError, "ValueError: because"),
        ("late for good", DeadlineError, "it takes too long"),
        ("no tensor", InvalidError, '"the culprit": expected'),
        ("unprintable", ModelError, "Unprintable"),
        ("no such thing", ModelError, "'Kind' object has no attribute 'no_such_thing'"),
    ],
)
def test_what_a_plug_in_raises_is_the_error_and_the_runner_goes_on(where, error, says):
    with shmbridge.connect(f"toy://{where}") as runner:
        for _ in range(2):
            runner.set_deadline(30)  # asks also after a late answer
            with pytest.raises(error) as caught:
                runner.evaluate({"x": 1})
            assert says in str(caught.value) and type(caught.value) is error


def test_a_long_text_is_cut_and_zeros_in_it_are_shown():
    with shmbridge.connect(f"toy://raises?why={'é' * 1500}") as runner:
        with pytest.raises(ModelError) as caught:
            runner.evaluate({})
        assert "ValueError: ééé" in str(caught.value) and str(caught.value).endswith("é…")


def test_an_interrupt_ends_a_plug_in_that_looks_and_not_the_next_question(toy):
    with shmbridge.connect("toy://wait") as runner:

        def interrupt():
            end = time.monotonic() + 10
            while not toy.kept and time.monotonic() < end:
                time.sleep(0.01)
            lib.shmb_interrupt(runner._r)

        threading.Thread(target=interrupt).start()
        with pytest.raises(InterruptedCallError, match="it was asked to"):
            runner.evaluate({"x": 1})
        assert runner.evaluate({"x": 1}) == 2


def test_ctrl_c_in_a_plug_in_is_ctrl_c():
    with shmbridge.connect("toy://ctrl c") as runner:
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                runner.evaluate({})
    with pytest.raises(KeyboardInterrupt):
        shmbridge.connect("toy://ctrl-c at open")
    with shmbridge.connect("toy://add") as runner:
        assert runner.evaluate({"x": 1}) == 2


def test_a_host_that_is_not_there_yet_is_tried_again_until_the_connect_deadline(toy):
    start = time.monotonic()
    with pytest.raises(NoHostError, match="nobody is there"):
        shmbridge.connect("toy://nowhere?connect_timeout=0.1")
    assert time.monotonic() - start >= 0.1 and toy.opened.count("nowhere") > 1
    with shmbridge.connect("toy://late", connect_timeout=60) as runner:
        assert runner.evaluate({"x": 1}) == 2
    with pytest.raises(NoHostError):
        shmbridge.connect("toy://nowhere", connect_timeout=0)


def test_close_is_called_once_and_its_error_is_not_lost(toy):
    toy.boom.append("add")
    runner = shmbridge.connect("toy://add")
    with pytest.raises(OSError, match="it does not close"):
        runner.close()
    runner.close()
    assert toy.closed == ["add"]


def test_an_open_that_fails_needs_no_close(toy):
    with pytest.raises(NoHostError):
        shmbridge.connect("toy://nowhere", connect_timeout=0)
    assert toy.closed == []


def test_each_thread_has_its_own_runner_of_a_plug_in(in_thread):
    def ask(by):
        with shmbridge.connect(f"toy://add?by={by}") as runner:
            return [runner.evaluate({"x": i}) for i in range(200)]

    calls = [in_thread(ask, by) for by in range(4)]
    assert [call.result() for call in calls] == [[i + by for i in range(200)] for by in range(4)]


def test_no_plug_in_of_that_scheme_is_unsupported():
    with pytest.raises(UnsupportedError, match='no runner for "nosuchscheme://"'):
        shmbridge.connect("nosuchscheme://x")


@pytest.mark.parametrize(
    ("scheme", "says"),
    [
        ("toymissing", "AttributeError"),
        ("toybroken", "a_module_that_nobody_has"),
        ("toyint", "RunnerKind, found ["),
    ],
)
def test_a_plug_in_that_does_not_load_says_why(scheme, says):
    with pytest.raises(UnsupportedError, match=scheme) as caught:
        shmbridge.connect(f"{scheme}://x")
    assert says in str(caught.value)


def test_plug_ins_are_listed(installed):
    assert {"toy", "toybroken"} <= set(plugins.names("runners"))
    assert "protobuf" in plugins.names("serdes")
    with pytest.raises(UnsupportedError, match="expected one of .*toy"):
        plugins.find("runners", "nothing", "there is none")


def test_shm_needs_no_plug_in_to_be_looked_for(python):
    code = """
        import sys, shmbridge
        try: shmbridge.connect("shm://nobody-has-this-name", connect_timeout=0)
        except shmbridge.NoHostError: print(sorted({"importlib.metadata", "shmbridge.serdes",
            "shmbridge.runners"} & set(sys.modules)))
    """
    assert python(code).end() == (0, "[]")


def test_a_program_ends_while_a_runner_of_a_plug_in_is_open(python, installed):
    code = """
        import sys
        sys.path.insert(0, sys.argv[1])
        import shmbridge
        runner = shmbridge.connect("toy://add")
        print(runner.evaluate({"x": 1}))
    """
    process = python(code, installed, stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "2\n", "")
