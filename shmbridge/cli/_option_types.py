"""Options that several commands have, and the types of options: files, numbers of bytes."""

from collections.abc import Callable, Mapping
from dataclasses import Field, field, fields
from functools import update_wrapper
from pathlib import Path
from typing import Any

import click

from shmbridge._native import lib
from shmbridge._urls.options import HostOptions, byte_count
from shmbridge.errors import InvalidError

Command = Callable[..., Any]
FILE = click.Path(dir_okay=False, path_type=Path)
EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def in_letters(count: int) -> str:
    """65536 as 64K."""
    for unit, letter in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if count % unit == 0:
            return f"{count // unit}{letter}"
    return str(count)


def size(text: str) -> int:
    """The type of an option: a number of bytes, for example 65536, 64K or 1M."""
    try:
        return byte_count(text)
    except InvalidError as error:
        raise click.BadParameter(str(error)) from error


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


def room_options(command: Command) -> Command:
    """A host's sizes. Options that are not given are None: pipes and some other hosts lack them."""
    channels = f"{HostOptions.channels}; 1 for pipes"
    runners = click.IntRange(1, lib.MAX_CHANNELS)
    advice_bytes = in_letters(HostOptions.advice_bytes)
    request_bytes = in_letters(HostOptions.request_bytes)
    for name, kind, text, default in (
        ("advice-bytes", size, "The maximum size of an advice.", advice_bytes),
        ("request-bytes", size, "The maximum size of a request.", request_bytes),
        ("channels", runners, "How many runners can connect at once.", channels),
    ):
        option = click.option(f"--{name}", type=kind, help=f"{text}  [default: {default}]")
        command = option(command)
    return command


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that the command line has."""
    return {name: value for name, value in options.items() if value is not None}
