"""The table of options in docs/deployment.md has every option that there is."""

import inspect
import re
from pathlib import Path

import pytest

import shmbridge
from shmbridge.cli.serve import serve
from shmbridge.hosts.llvm import LlvmHost
from shmbridge.hosts.pipe import PipeHost

PAGE = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text()
ROWS = re.findall(r"^\| (`[^|]*) \|", PAGE[PAGE.index("## Options") :], re.MULTILINE)
NAMES = {name for row in ROWS for name in re.findall(r"`([\w.]+)`", row)}
NO_OPTION = {"self", "NAME", "name", "url", "model", "options"}
# Which model; how the command itself runs.
NOT_OF_SERVE_ALONE = {"onnx", "python", "verbose", "background"}


def parameters(*functions):
    found = {name for each in functions for name in inspect.signature(each).parameters}
    return found - NO_OPTION


@pytest.mark.parametrize(
    "functions",
    [(shmbridge.connect,), (shmbridge.Host, shmbridge.Host.serve), (PipeHost, LlvmHost)],
    ids=["connect", "Host", "other hosts"],
)
def test_python_has_no_option_that_the_table_lacks(functions):
    assert parameters(*functions) - NAMES == set()


def test_serve_has_no_option_that_the_table_lacks():
    found = {option.opts[-1].lstrip("-").replace("-", "_") for option in serve.params}
    assert found - NO_OPTION - NOT_OF_SERVE_ALONE - NAMES == set()


def test_the_c_options_are_those_of_connect():
    from shmbridge._native import ffi

    fields = {name for name, _ in ffi.typeof("shmb_options").fields} - {"size", "log_context"}
    assert fields == parameters(shmbridge.connect)


def test_grpc_has_no_option_that_the_table_lacks():
    from shmbridge._grpc import options

    assert set(options.Options._fields) - NAMES == set()
