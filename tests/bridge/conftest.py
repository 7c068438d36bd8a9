"""Hosts that were killed."""

import pytest
from support.bridges import DIES


@pytest.fixture
def dead_host(name, python):
    """Leaves what a killed host leaves."""

    def die():
        host = python(DIES, name)
        assert host.line() == "made"
        host.say()
        host.wait()

    return die
