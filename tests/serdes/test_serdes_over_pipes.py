"""A SerDes in Python on both ends of pipe://: its messages, its options, and what it raises
there."""

import contextlib

import pytest
from test_serdes_protobuf import classes

import shmbridge
from shmbridge import InexactError, ShmbridgeError, serdes
from shmbridge._runner import urls
from shmbridge._urls import plugins
from shmbridge.serdes import SerDes, _core

globals().update(classes)  # for MODULE:CLASS


class Picky(SerDes):
    """One text; raises what is in `errors` under the name of the method."""

    errors = {}

    def _at(self, method):
        if method in self.errors:
            raise self.errors[method]

    def encode_request(self, fields, want):
        self._at("encode_request")
        return fields["x"].encode()

    def decode_request(self, data):
        self._at("decode_request")
        return {"x": data.decode()}, None

    def encode_advice(self, advice):
        self._at("encode_advice")
        return advice["advice"].encode()

    def decode_advice(self, data, want):
        self._at("decode_advice")
        return {"advice": data.decode()}


@pytest.fixture(scope="module", autouse=True)
def registered():
    _core.register("picky", Picky())


@pytest.fixture
def talk(tmp_path):
    """talk(serdes, model): a runner whose host answers with the model, in a thread."""

    @contextlib.contextmanager
    def talking(options, model, **host_options):
        url = f"pipe://{tmp_path}/advice?serdes={options}"
        with (
            shmbridge.Host(url, **host_options) as host,
            host.start(model),
            shmbridge.connect(url, deadline=30) as runner,
        ):
            yield runner

    return talking


def test_the_users_own_messages_go_through_pipes(talk):
    module = __name__
    with talk(
        f"protobuf&request={module}:Everything&advice={module}:One",
        lambda request: int(request["i64"]) + 1,
    ) as runner:
        assert runner.evaluate({"i64": 2**40, "many_s": ["a"]}) == 2**40 + 1
        with pytest.raises(InexactError, match='"i32"'):
            runner.evaluate({"i32": 2**31})
        assert runner.evaluate({"i64": 1}) == 2


def test_an_advice_that_the_users_message_cannot_hold_is_an_error_on_both_sides(talk):
    module = __name__
    options, says = (
        f"protobuf&request={module}:Everything&advice={module}:One",
        '"decision": expected int64, found a str',
    )
    with talk(options, lambda request: "text") as runner, pytest.raises(ShmbridgeError, match=says):
        runner.evaluate({"i64": 1})


@pytest.mark.parametrize(
    "method", ["encode_request", "decode_request", "encode_advice", "decode_advice"]
)
def test_what_a_serdes_raises_reaches_the_runner_and_the_next_question_is_answered(
    talk, method, monkeypatch, capfd
):
    with talk("picky", lambda request: request["x"].upper()) as runner:
        assert runner.evaluate({"x": "a"}) == "A"
        monkeypatch.setattr(Picky, "errors", {method: LookupError("no such thing")})
        with pytest.raises(ShmbridgeError, match="LookupError: no such thing"):
            runner.evaluate({"x": "b"})
        monkeypatch.setattr(Picky, "errors", {})
        with contextlib.suppress(ShmbridgeError):  # the conversation may have ended with that
            assert runner.evaluate({"x": "c"}) == "C"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("method", ["encode_request", "decode_advice"])
def test_ctrl_c_in_a_runners_serdes_is_ctrl_c(talk, method, monkeypatch):
    with talk("picky", lambda request: "x") as runner:
        monkeypatch.setattr(Picky, "errors", {method: KeyboardInterrupt()})
        with pytest.raises(KeyboardInterrupt):
            runner.evaluate({"x": "a"})


@pytest.mark.parametrize("method", ["decode_request", "encode_advice"])
def test_ctrl_c_in_a_hosts_serdes_ends_its_loop(tmp_path, method, monkeypatch, in_thread):
    url = f"pipe://{tmp_path}/advice?serdes=picky"
    with shmbridge.Host(url) as host:
        call = in_thread(host.serve, lambda request: "advice")
        with shmbridge.connect(url, deadline=30) as runner:
            assert runner.evaluate({"x": "a"}) == "advice"
            monkeypatch.setattr(Picky, "errors", {method: KeyboardInterrupt()})
            with pytest.raises(ShmbridgeError):
                runner.evaluate({"x": "a"})
            call.result()
            assert plugins.raise_carried() is None


def test_each_set_of_options_is_a_serdes_of_its_own():
    module = __name__
    names = {
        urls.resolve(f"pipe:///p?serdes=protobuf{options}")
        for options in ("", f"&request={module}:One", f"&advice={module}:One")
    }
    assert len(names) == 3 and all(serdes.resolve(name) == name for name in names)
