"""Both sides of grpc://, and what asks them."""

import numpy as np
import pytest

from shmbridge import Ragged, UnsupportedError, connect
from shmbridge._urls import plugins

try:
    plugins.find("hosts", "grpc")
except UnsupportedError as error:
    pytest.skip(str(error), allow_module_level=True)

ANY = "grpc://127.0.0.1:0"


def same(found, sent):
    if isinstance(sent, Ragged):
        return same(found.values, sent.values) and list(found.offsets) == list(sent.offsets)
    if isinstance(sent, np.ndarray):
        return (
            found.dtype == sent.dtype and found.shape == sent.shape and bool(np.all(found == sent))
        )
    return found == sent


def ask_once(url, features):
    with connect(url) as runner:
        return runner.evaluate(features)
