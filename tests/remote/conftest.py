"""Hosts and runners of grpc://, whichever side serves."""

import contextlib

import pytest
from support.processes import free_port

from shmbridge import Host, connect


@pytest.fixture(autouse=True)
def nothing_of_hosts_that_were_killed(no_bridges):
    pass


@pytest.fixture
def serving(in_thread):
    """serving(model, url=…, **options): a host whose loop runs in a thread; closed when the test
    ends."""
    hosts, calls = [], []

    def start(model, url="grpc://127.0.0.1:0", **options):
        hosts.append(Host(url, **options))
        calls.append(in_thread(hosts[-1].serve, model))
        return hosts[-1]

    yield start
    for host, call in zip(hosts, calls, strict=True):
        host.close()
        call.result()


@pytest.fixture(params=["host serves", "compiler serves"])
def joined(request, serving):
    """joined(model, query="", **options): a host and a runner of it, whichever side serves."""
    with contextlib.ExitStack() as stack:

        def join(model, query="", **options):
            if request.param == "host serves":
                host = serving(model, **options)
                return host, stack.enter_context(connect(host.url + query))
            address = f"grpc://127.0.0.1:{free_port()}"
            host = serving(model, f"{address}?role=client", **options)
            return host, stack.enter_context(
                connect(f"{address}?role=server{query.replace('?', '&')}", connect_timeout=30)
            )

        yield join
