"""grpc:// with other people's services, messages and programs."""

import concurrent.futures
import contextlib
import importlib
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from support.grpc import ANY, ask_once
from support.processes import free_port

from shmbridge import DeadlineError, Host, MismatchError, ModelError, UnsupportedError, connect

USER = """
    syntax = "proto3";
    package tuner;
    message Observation { repeated float costs = 1; string function = 2; }
    message Decision { int32 unroll = 1; }
    service Tuner { rpc Decide(Observation) returns (Decision);
        rpc Watch(Observation) returns (stream Decision); }
    service Worker { rpc getObservation(Decision) returns (Observation); }
"""


@pytest.fixture(scope="module")
def tuner(tmp_path_factory):
    """The user's own messages, made by protoc: the module tuner_pb2."""
    folder = tmp_path_factory.mktemp("tuner")
    (folder / "tuner.proto").write_text(textwrap.dedent(USER))
    try:
        subprocess.run(
            ["protoc", f"-I{folder}", f"--python_out={folder}", "tuner.proto"], check=True
        )
    except FileNotFoundError:
        pytest.skip("needs protoc")
    sys.path.insert(0, str(folder))
    yield importlib.import_module("tuner_pb2")
    sys.path.remove(str(folder))


DECIDE = "service=tuner.Tuner/Decide&messages=tuner_pb2"

OBSERVE = "service=tuner.Worker/getObservation&messages=tuner_pb2"

QUESTION = {"costs": np.arange(3, dtype=np.float32), "function": "main"}


def model_of_tuner(request):
    if request["function"] == "fail":
        raise ValueError("naïve")
    if request["function"] == "too large":
        return {"unroll": 2**40}
    return {"unroll": np.int32(request["costs"].sum() + len(request["function"]))}


def test_a_users_own_service_and_messages(serving, tuner):
    host = serving(model_of_tuner, f"{ANY}?{DECIDE}", channels=1)
    with connect(f"{host.url}?{DECIDE}") as a, connect(f"{host.url}?{DECIDE}") as b:
        for runner in (a, b, a):  # one channel: calls know nothing of one another
            assert runner.evaluate(QUESTION) == 7
            with pytest.raises(ModelError, match="py:[0-9]+: ValueError: naïve$"):
                runner.evaluate({**QUESTION, "function": "fail"})
        with pytest.raises(MismatchError, match="no such field"):
            a.evaluate({"colour": 1})


def test_a_users_own_service_in_training(serving, tuner):
    address = f"grpc://127.0.0.1:{free_port()}"
    serving(model_of_tuner, f"{address}?role=client&{OBSERVE}")
    for _ in range(2):
        with connect(f"{address}?role=server&{OBSERVE}", connect_timeout=30, deadline=20) as runner:
            assert [runner.evaluate(QUESTION) for _ in range(3)] == [7, 7, 7]
            with pytest.raises(ModelError, match="py:[0-9]+: ValueError: naïve$"):
                runner.evaluate({**QUESTION, "function": "fail"})
            assert runner.evaluate(QUESTION) == 7


def test_a_users_last_advice_arrives_though_the_trainer_closes_behind_it(tuner, in_thread):
    address = f"grpc://127.0.0.1:{free_port()}"
    with Host(f"{address}?role=client&{OBSERVE}") as host:
        asked = in_thread(ask_once, f"{address}?role=server&{OBSERVE}", QUESTION)
        for request in host:
            request.reply(**model_of_tuner(request))
            break
    assert asked.result() == 7


def test_a_users_program_without_shmbridge_asks_and_answers(serving, tuner, in_thread, caplog):
    import grpc

    host = serving(model_of_tuner, f"{ANY}?{DECIDE}")
    with grpc.insecure_channel(host.url.removeprefix("grpc://")) as channel:
        decide = channel.unary_unary(
            "/tuner.Tuner/Decide", tuner.Observation.SerializeToString, tuner.Decision.FromString
        )
        assert decide(tuner.Observation(costs=[1, 2], function="f"), timeout=10).unroll == 4
        with pytest.raises(grpc.RpcError) as caught:
            decide(tuner.Observation(function="fail"), timeout=10)
        assert caught.value.code() == grpc.StatusCode.UNKNOWN and caught.value.details().endswith(
            ": ValueError: naïve"
        )
        for _ in range(2):
            with pytest.raises(grpc.RpcError, match='"unroll": 1099511627776 of dtype int64'):
                decide(tuner.Observation(function="too large"), timeout=10)
    assert caplog.text.count("1099511627776") == 1

    address = f"127.0.0.1:{free_port()}"

    def train():
        with grpc.insecure_channel(address) as channel:
            ask = channel.unary_unary(
                "/tuner.Worker/getObservation",
                tuner.Decision.SerializeToString,
                tuner.Observation.FromString,
            )
            seen = ask(tuner.Decision(), timeout=20, wait_for_ready=True)
            with contextlib.suppress(grpc.RpcError):
                ask(tuner.Decision(unroll=len(seen.costs)), timeout=20)

    call = in_thread(train)
    with connect(f"grpc://{address}?role=server&{OBSERVE}", connect_timeout=30) as runner:
        assert runner.evaluate(QUESTION) == 3
    call.result()


@pytest.fixture
def workers(tuner):
    """workers(count): a compiler of the user's own, without shmbridge, that serves itself: answers
    every call at once with an observation, and ends its episode after so many. Returns the address
    and what it was sent, in bytes."""
    import grpc

    servers = []

    def start(episode=1000):
        sent = []

        def observe(data, context):
            sent.append(data)
            if len(sent) > episode:
                time.sleep(60)
            return tuner.Observation(costs=[len(sent)], function="main").SerializeToString()

        handler = grpc.method_handlers_generic_handler(
            "tuner.Worker", {"getObservation": grpc.unary_unary_rpc_method_handler(observe)}
        )
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        server.add_generic_rpc_handlers((handler,))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        servers.append(server)
        return f"grpc://127.0.0.1:{port}?role=client&{OBSERVE}", sent

    yield start
    for server in servers:
        server.stop(0)


def test_a_compiler_of_the_users_gets_no_empty_message_when_the_trainer_closes(workers):
    url, sent = workers()
    with Host(url) as host:
        for number, request in enumerate(host):
            request.reply(unroll=np.int32(7))
            if number == 20:
                break
    time.sleep(0.5)
    assert sent[0] == b"" and b"" not in sent[1:]


@pytest.mark.parametrize("wrong", ["raises", "drops"])
def test_a_compiler_of_the_users_gets_no_empty_message_when_a_model_fails(workers, wrong, capfd):
    url, sent = workers()
    with Host(url, until_idle=1.0) as host:
        asked = 0
        for request in host:  # not by enumerate, which would hold the request
            asked += 1  # noqa: SIM113
            if asked < 6:
                request.reply(unroll=np.int32(7))
            elif wrong == "raises":
                request.fail(ValueError("no idea"))
            del request  # the loop's variable would hold it
    assert len(sent) == 6 and sent[0] == b"" and b"" not in sent[1:]
    said = capfd.readouterr().err
    assert (
        said.count("\n") == 1
        and "not called again" in said
        and ("no idea" in said or wrong == "drops")
    )


def test_a_host_of_a_users_service_ends_when_idle(tuner, in_thread):
    with Host(f"{ANY}?{DECIDE}", until_idle=0.5) as host:
        serving = in_thread(host.serve, model_of_tuner)
        assert ask_once(f"{host.url}?{DECIDE}", QUESTION) == 7
        serving.result()


def test_spare_runners_are_not_waited_for_in_batches(tuner, in_thread):
    with Host(f"{ANY}?{DECIDE}") as host:
        serving = in_thread(
            lambda: [
                (len(batch.requests), batch.reply(unroll=np.full(len(batch.requests), 3, np.int32)))
                for batch in host.batches(8, max_wait=60)
            ]
        )
        with contextlib.ExitStack() as stack:
            runners = [
                stack.enter_context(connect(f"{host.url}?{DECIDE}", deadline=30)) for _ in range(3)
            ]
            asked = [in_thread(runner.evaluate, QUESTION) for runner in runners]
            assert [each.result() for each in asked] == [3, 3, 3]
            assert runners[0].evaluate(QUESTION) == 3  # within its deadline: nobody else is asking
        host.close()
        serving.result()


def test_a_users_deadline_is_the_calls(serving, tuner):
    go = threading.Event()
    host = serving(lambda request: go.wait(20) and {"unroll": 1}, f"{ANY}?{DECIDE}", channels=1)
    with connect(f"{host.url}?{DECIDE}") as runner:
        runner.set_deadline(0.2)
        with pytest.raises(DeadlineError):
            runner.evaluate(QUESTION)
        go.set()
        runner.set_deadline(20)
        assert runner.evaluate(QUESTION) == 1


def test_a_stream_of_the_users_is_refused(tuner):
    with pytest.raises(UnsupportedError, match="one request and one response"):
        Host(f"{ANY}?service=tuner.Tuner/Watch&messages=tuner_pb2")


def test_serve_tells_compilers_of_a_trainer_that_they_serve():
    from shmbridge.cli.serve import _inputs_and_calls

    url = f"grpc://127.0.0.1:{free_port()}?role=client"
    with Host(url) as host:
        (line,) = _inputs_and_calls(host, lambda features: 1)
    assert "role=server" in line
