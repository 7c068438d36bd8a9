"""Hosts and runners of grpc://, whichever side serves."""

import contextlib

import pytest
from support.processes import free_port

from shmbridge import Host, connect


@pytest.fixture(autouse=True)
def nothing_of_hosts_that_were_killed(no_bridges):
    pass


@pytest.fixture
def serving():
    """serving(model, url=…, **options): a host whose loop runs in a thread; closed when the test
    ends."""
    with contextlib.ExitStack() as stack:

        def start(model, url="grpc://127.0.0.1:0", **options):
            host = stack.enter_context(Host(url, **options))
            stack.callback(host.start(model).stop)
            return host

        yield start


@pytest.fixture(params=["host serves", "compiler serves"])
def urls(request):
    """The URLs of a host and of its runner, whichever side serves."""
    url = f"grpc://127.0.0.1:{free_port()}"
    if request.param == "host serves":
        return url, url
    return f"{url}?role=client", f"{url}?role=server"


@pytest.fixture
def joined(urls, serving):
    """joined(model, **options): a host and a runner of it, whichever side serves."""
    with contextlib.ExitStack() as stack:

        def join(model, **options):
            host = serving(model, urls[0], **options)
            return host, stack.enter_context(connect(urls[1], connect_timeout=30))

        yield join
