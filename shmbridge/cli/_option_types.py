"""Options that several commands have, and the types of options."""

from collections.abc import Callable, Mapping
from dataclasses import Field, field, fields
from functools import update_wrapper
from pathlib import Path
from typing import Any

import click

from shmbridge._urls.options import HostOptions
from shmbridge.errors import InvalidError

Command = Callable[..., Any]
FILE = click.Path(dir_okay=False, path_type=Path)
EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
BYTES = "{}, for example 65536, 64K or 1M.  [default: {}K]"
HOST = {  # options of a host: what they take, and what they are
    "channels": (
        "N",
        f"How many runners can connect at once.  [default: {HostOptions.channels}; 1 for pipes]",
    ),
    "request_bytes": (
        "BYTES",
        BYTES.format("The maximum size of a request", HostOptions.request_bytes >> 10),
    ),
    "advice_bytes": (
        "BYTES",
        BYTES.format("The maximum size of an advice", HostOptions.advice_bytes >> 10),
    ),
    "deadline": (
        "SECONDS",
        "How long an answer may take, for compilers without their own deadline. inf: no limit.  "
        "[default: 10]",
    ),
    "until_idle": ("SECONDS", "End after this time without a runner."),
}
ROOM = "channels", "request_bytes", "advice_bytes"


def option(text: str, *names: str, **settings: Any) -> Any:
    """A field of a command's options: its help, and the settings of click.option. Its name is the
    field's, a bool is a flag, and a default is shown."""

    def decorator(of: Field[Any]) -> Callable[[Command], Command]:
        flags = names or (f"--{of.name.replace('_', '-')}",)
        more: dict[str, Any] = {"is_flag": True} if of.type in ("bool", bool) else {}
        more |= {"show_default": True} if "default" in settings else {}
        return click.option(*flags, of.name, help=text, **more, **settings)

    return field(metadata={"click": decorator})


def argument(**settings: Any) -> Any:
    """A field of a command's options: the settings of click.argument."""
    return field(metadata={"click": lambda of: click.argument(of.name, **settings)})


def takes(options: Any) -> Callable[[Command], Command]:
    """Decorates a command whose first parameter is this dataclass of `option` and `argument`."""

    def decorate(command: Command) -> Command:
        def parsed(**given: Any) -> None:
            command(
                options(**{each.name: given.pop(each.name) for each in fields(options)}), **given
            )

        decorated: Command = update_wrapper(parsed, command)
        for each in reversed(fields(options)):
            decorated = each.metadata["click"](each)(decorated)
        return decorated

    return decorate


def host_options(*names: str) -> Callable[[Command], Command]:
    """Options of a host, as its URL has them too: texts, None where they are not given."""

    def decorate(command: Command) -> Command:
        for name in reversed(names):
            metavar, text = HOST[name]
            flag = f"--{name.replace('_', '-')}"
            command = click.option(flag, metavar=metavar, help=text)(command)
        return command

    return decorate


def given(texts: Mapping[str, str | None]) -> dict[str, Any]:
    """The values of those that are given; pipes and some other hosts lack others. Errors:
    click.BadParameter."""
    said: dict[str, Any] = {name: text for name, text in texts.items() if text is not None}
    try:
        options = HostOptions(**said)
    except InvalidError as error:
        raise click.BadParameter(str(error)) from error
    return {name: getattr(options, name) for name in said}
