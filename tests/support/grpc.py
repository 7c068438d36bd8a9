"""Both sides of grpc://, and what asks them."""

import pytest

from shmbridge import UnsupportedError, connect
from shmbridge._urls import plugins

try:
    plugins.find("hosts", "grpc", "there is no host for grpc")
except UnsupportedError as error:
    pytest.skip(str(error), allow_module_level=True)

ANY = "grpc://127.0.0.1:0"


def ask_once(url, features):
    with connect(url) as runner:
        return runner.evaluate(features)
