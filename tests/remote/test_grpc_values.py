"""grpc://, whichever side serves: values, errors, batches, several compilers."""

import gc

import numpy as np
import pytest
from support.grpc import ANY, same
from support.processes import free_port, until

from shmbridge import (
    DroppedError,
    Host,
    InexactError,
    InUseError,
    MismatchError,
    ModelError,
    Ragged,
    TensorSpec,
    connect,
)


def test_every_kind_of_value_comes_back_as_it_was(joined, echo):
    values = {
        "scalar": 7,
        "matrix": np.arange(6, dtype=np.int16).reshape(2, 3),
        "empty": np.empty((0, 4), np.float32),
        "flags": np.array([True, False]),
        "text": "naïve\0 \udcff",
        "texts": ["a", "", "b"],
        "rows": Ragged.from_rows([np.arange(2.0), np.arange(0.0), np.arange(3.0)]),
    }
    _, runner = joined(echo)
    found = runner.evaluate(values)
    assert list(found) == list(values)
    assert all(same(found[name], value) for name, value in values.items())


def test_the_advice_comes_in_the_wanted_dtype(joined):
    _, runner = joined(lambda request: float(request["x"]))
    assert runner.evaluate({"x": 3}, dtype=np.int8) == 3
    with pytest.raises(InexactError, match="not exactly representable as int8"):
        runner.evaluate({"x": 0.5}, dtype=np.int8)
    assert runner.evaluate({"x": 4}) == 4


def test_scalars_keep_their_dtype(joined):
    _, runner = joined(lambda request: np.float32(0.1))
    assert runner.evaluate({"x": 3}, dtype=np.float32) == np.float32(0.1)


def test_a_models_failure_keeps_its_class_and_text(joined):
    def model(request):
        if "drop" in request:
            return request._drop()
        raise MismatchError("other shapes, please") if request["x"] else ValueError(request["says"])

    _, runner = joined(model)
    for says, text in (("naïve", "naïve$"), ("naïve" * 500, "(naïve){50}.*…$")):
        with pytest.raises(ModelError, match=f": ValueError: {text}"):
            runner.evaluate({"x": 0, "says": says})
    with pytest.raises(MismatchError, match="^other shapes, please$"):
        runner.evaluate({"x": 1})


def test_a_question_that_is_let_go_is_dropped(in_thread):
    with Host(ANY) as host:

        def loop():
            for request in host:
                if "last" in request:
                    return request.reply(0)

        call = in_thread(loop)
        with connect(host.url) as runner:
            with pytest.raises(DroppedError):
                runner.evaluate({"x": 1})
            assert runner.evaluate({"last": 1}) == 0
        call.result()


def test_the_hosts_specs_are_kept(serving):
    host = serving(
        lambda request: 1,
        features=[TensorSpec("x", np.float32, (2,))],
        advice=[TensorSpec("a", np.int32)],
    )
    with connect(host.url) as runner, pytest.raises(MismatchError, match="expects x"):
        runner.evaluate({"x": 1})


def test_arrays_may_be_kept(joined):
    kept = []

    def model(request):
        kept.append(request["x"])
        return len(kept)

    _, runner = joined(model, slots=4)
    for i in range(9):
        runner.evaluate({"x": np.full(100, i)})
    assert [array[0] for array in kept] == list(range(9))
    kept.clear()
    gc.collect()


def test_batches_hold_the_questions_of_several_compilers(in_thread):
    sizes = []
    with Host(ANY) as host:

        def loop():
            for batch in host.batches(max_size=2, max_wait=5):
                sizes.append(len(batch["x"]))
                batch.reply(batch["x"] * 10)

        call = in_thread(loop)
        with connect(host.url) as a, connect(host.url) as b:
            until(lambda: host.runners == 2)
            both = [in_thread(runner.evaluate, {"x": i}) for i, runner in enumerate((a, b))]
            assert [one.result() for one in both] == [0, 10]
        host.close()
        call.result()
    assert sizes == [2]


def test_many_compilers_share_one_port(serving, in_thread):
    host = serving(lambda request: request["x"] + 1)

    def ask(i):
        with connect(host.url) as runner:
            return [runner.evaluate({"x": i * 100 + k}) for k in range(20)]

    calls = [in_thread(ask, i) for i in range(8)]
    assert [call.result() for call in calls] == [
        [i * 100 + k + 1 for k in range(20)] for i in range(8)
    ]
    until(lambda: host.runners == 0)


def test_a_trainer_calls_several_compilers(serving):
    ports = [free_port() for _ in range(3)]
    urls = [f"grpc://127.0.0.1:{port}?role=server" for port in ports]
    host = serving(
        lambda request: request["x"] * 2,
        f"grpc://{','.join(f'127.0.0.1:{port}' for port in ports)}?role=client",
    )
    with connect(urls[0]) as a, connect(urls[2]) as c:
        until(lambda: host.runners == 2)
        assert a.evaluate({"x": 1}) == 2 and c.evaluate({"x": 3}) == 6
        with connect(urls[1]) as b:
            assert b.evaluate({"x": 2}) == 4 and a.evaluate({"x": 5}) == 10
    until(lambda: host.runners == 0)


def test_a_unix_socket_does_too(serving, tmp_path):
    url = f"grpc://unix:{tmp_path}/socket"
    host = serving(lambda request: 5, url)
    assert host.url == url
    with connect(url) as runner:
        assert runner.evaluate({"x": 0}) == 5
    with pytest.raises(InUseError, match="listens there"):
        Host(url)
