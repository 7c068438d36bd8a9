"""grpc://, whichever side serves: errors, batches, several compilers. Values are in
tests/conformance."""

from support.grpc import ANY
from support.processes import free_port, until

from shmbridge import Host, connect


def test_batches_hold_the_questions_of_several_compilers(in_thread):
    sizes = []

    def model(batch):
        sizes.append(len(batch))
        return batch["x"] * 10

    with (
        Host(ANY) as host,
        host.start(model, max_batch=2, max_wait=5),
        connect(host.url) as a,
        connect(host.url) as b,
    ):
        until(lambda: host.runners == 2)
        both = [in_thread(runner.evaluate, {"x": i}) for i, runner in enumerate((a, b))]
        assert [one.result() for one in both] == [0, 10]
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
