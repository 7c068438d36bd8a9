"""A host whose requests the tests receive."""

import pytest

from shmbridge import Host


@pytest.fixture
def host(name):
    with Host(name) as host:
        yield host
