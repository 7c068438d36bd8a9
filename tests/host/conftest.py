"""Hosts that were killed; a host whose requests the tests receive."""

import pytest
from support.bridges import DIES

from shmbridge import Host


@pytest.fixture
def dead_host(name, python):
    """Leaves what a killed host leaves."""

    def die():
        host = python(DIES, name)
        assert host.line() == "made"
        host.say()
        host.wait()

    return die


@pytest.fixture
def host(name):
    with Host(name) as host:
        yield host
