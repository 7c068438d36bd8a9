"""examples/yaml_serdes, a third party's SerDes: installed as pip would, it is found by name and
keeps what it must keep."""

import re

import numpy as np
import pytest
from hypothesis import example, given
from support.distributions import EXAMPLES, installed_example
from support.values import DTYPES, many
from test_serdes import messages

from shmbridge import CorruptError, UnsupportedError, serdes
from shmbridge._runner import urls
from shmbridge._values import tensor
from shmbridge.serdes._core import Core

pytest.importorskip("yaml")
EXAMPLE = EXAMPLES / "yaml_serdes"


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory):
    """The directory that has the distribution."""
    with installed_example("yaml_serdes", tmp_path_factory.mktemp("site-packages")) as where:
        yield where


@pytest.fixture(scope="module", params=["Python", "C"])
def yaml(request):
    return serdes.find("yaml") if request.param == "Python" else Core(serdes.ensure("yaml"))


def test_it_is_found_by_its_entry_point():
    assert type(serdes.find("yaml")).__name__ == "Yaml"
    assert urls.resolve("pipe:///p?serdes=yaml") == "pipe:///p?serdes=yaml"
    assert (
        urls.resolve("pipe:///p?indent=4&serdes=yaml&connect_timeout=1")
        == "pipe:///p?serdes=yaml(indent:4)&connect_timeout=1"
    )
    assert (
        Core("yaml(indent:4)").encode({"x": [1]})
        == b"x:\n    dtype: int64\n    shape: [1]\n    values: [1]\n"
    )


@many
@given(messages)
@example({"no": "yes", "~": "null", "1": "1e3", "x": np.float64(-0.0)})
def test_a_message_comes_back_as_it_was(yaml, message):
    message = {
        name: value
        for name, value in message.items()
        if tensor.as_field(name, value).values.dtype.name != "bfloat16"
    }
    with np.errstate(invalid="ignore"):
        found = yaml.decode(yaml.encode(message))
    assert list(found) == list(message)
    for name, value in message.items():
        a, b = tensor.as_field(name, found[name]), tensor.as_field(name, value)
        assert (a.code, a.kind, a.dims) == (b.code, b.kind, b.dims)
        assert np.array_equal(a.values, b.values, equal_nan=b.values.dtype.kind == "f")
        assert a.offsets is None or np.array_equal(a.offsets, b.offsets)


def test_what_yaml_cannot_hold_is_refused(yaml):
    with pytest.raises(UnsupportedError, match='"x": YAML has bool, .*found bfloat16'):
        yaml.encode({"x": np.ones(3, DTYPES[-1])})


X = "x: {dtype: int8, shape: [2], values: [1, 2]}"


@pytest.mark.parametrize(
    "text",
    [
        *("", "5", "[1]", "x: {dtype: int8}", "x: {}", "x:", "\t", "a: [", "&a x: *a"),
        *("? [a]\n: b", "a: &a [1]\nb: [*a, *a]", "!!python/object/apply:os.system [ls]"),
        *("[" * 100_000, "x: " + "{a: " * 10_000),
        *(X.replace("[2]", new) for new in ("[3]", "[-2]", "[4000000000, 4000000000]", "2.5")),
        *(X.replace("int8", new) for new in ("S1000000000", "(9999999,)f4", "object", "[1]")),
        *(X.replace("[1, 2]", new) for new in ("[1, 300]", "[1, 2.5]", "[1, true]")),
        *(X.replace("[1, 2]", new) for new in ("[1, [2]]", "12")),
        *(X.replace("}", f", offsets: {new}}}") for new in ("[0, 9]", "[a]")),
        X.replace("values: [1, 2]", "shape: [2]"),
    ],
)
def test_what_is_no_message_is_an_error(yaml, text):
    try:
        found = yaml.decode(text.encode())
        for name, value in found.items():
            tensor.as_field(name, value)  # the core checks offsets
    except (CorruptError, ValueError):
        return
    assert text == "x:" and found == {"x": ""}


def test_the_readmes_command_works(python, installed):
    command = re.search(r"python -c '(.*)'", (EXAMPLE / "README.md").read_text())[1]
    status, said = python(
        f"import sys; sys.path.insert(0, sys.argv[1]); {command}", installed
    ).end()
    assert status == 0 and " ".join(said.split()) == "x: dtype: int64 shape: [2] values: [0, 1]"
