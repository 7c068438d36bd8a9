"""Changed copies of valid bytes are read, or are a documented error."""

import logging
import random

import pytest

pytest.importorskip("grpc")
import python_parsers


@pytest.mark.parametrize("name", python_parsers.PARSERS)
def test_changed_bytes_are_read_or_an_error(name, tmp_path, caplog):
    caplog.set_level(logging.ERROR, "shmbridge")
    python_parsers.fuzz(name, tmp_path, random.Random(name), inputs=200)
