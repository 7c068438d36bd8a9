"""Whatever the Python reference shows tells each of its parameters under Args, and its errors under
Raises."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs/reference-python.md").read_text()
# Users get these from a call of the library's: what their constructors take is not for them.
MADE = {"shmbridge.Request", "shmbridge.Batch", "shmbridge.Serving"}


def find(path):
    """What a dotted path names: a module, or a member of one."""
    module, _, name = path.rpartition(".")
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        return getattr(importlib.import_module(module), name)


def shown():
    """By its path: every function, class and method of the page."""
    found = {}
    for kind, path in re.findall(r"^\.\. auto(module|class|function):: (\S+)", PAGE, re.MULTILINE):
        try:
            things = {path: find(path)}
        except ImportError as error:
            assert "pip install" in str(error)  # it is for users of a package that is not here
            continue
        if kind == "module":
            names = getattr(things[path], "__all__", None)
            own = {
                name: each
                for name, each in vars(things.pop(path)).items()
                if names is None or name in names
            }
            things = {
                f"{path}.{name}": each
                for name, each in own.items()
                if name[0] != "_" and getattr(each, "__module__", "") == path or names
            }
        for name, thing in things.items():
            found[name] = thing
            for method, each in vars(thing).items() if inspect.isclass(thing) else ():
                each = getattr(each, "__func__", each)
                if inspect.isfunction(each) and method[0] != "_":
                    found[f"{name}.{method}"] = each
    left_out = re.findall(r":exclude-members: (.*)", PAGE)
    excluded = {name for names in left_out for name in names.split(", ")}
    return {name: each for name, each in found.items() if name.split(".")[-1] not in excluded}


SHOWN = shown()


def untold(thing):
    """The parameters, or fields of a dataclass, that the docstring does not list."""
    text = inspect.getdoc(thing) or ""
    if re.match(r"(The same as|As) `", text):  # another's docstring
        return []
    sections = re.findall(r"^(?:Args|Attributes):\n((?:    .*\n?|\n)+)", text, re.MULTILINE)
    told = re.findall(r"^    ([^\s:][^:]*):", "".join(sections), re.MULTILINE)
    names = {name.strip(" *") for names in told for name in names.split(",")}
    parameters = inspect.signature(thing).parameters
    return [name for name in parameters if name not in {*names, "self", "cls"}]


@pytest.mark.parametrize("name", sorted(SHOWN.keys() - MADE))
def test_every_parameter_is_told(name):
    thing = SHOWN[name]
    if inspect.isclass(thing) and (issubclass(thing, Exception) or "__init__" not in vars(thing)):
        return  # its constructor is another's
    of_all = inspect.getdoc(SHOWN.get(name.rpartition(".")[0])) or ""  # "methods take the label …"
    assert [each for each in untold(thing) if f"take the {each} " not in of_all] == []


@pytest.mark.parametrize("name", sorted(SHOWN))
def test_errors_are_told_under_raises(name):
    assert "Errors:" not in (inspect.getdoc(SHOWN[name]) or "")
