"""Runs and shows the programs of `shmbridge demo`."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape

from shmbridge import _config

# Fits where /dev/shm is small, as in containers.
SMALL = (
    "--channels",
    "4",
    "--request-bytes",
    "64K",
)


def flags() -> list[str]:
    return shlex.split(f"{_config.cflags()} {_config.libs()}")


class Stage:
    """Runs and shows the demo's programs.

    name: the prefix of its bridges' names. short: replacements for parts of a command, so that it
        is shown as a user would type it.
    """

    def __init__(self, out: Console, directory: Path) -> None:
        self.out = out
        self.directory = directory
        self.name = f"demo-{os.getpid()}"
        self.short = {
            f"{directory}/": "",
            shlex.join(flags()): "$(shmbridge config --cflags --libs)",
            str(_config.prefix()): "$(shmbridge config --prefix)",
        }

    def title(self, text: str) -> None:
        """Prints a heading."""
        self.out.print()
        self.out.print(f"[bold cyan]{escape(text)}[/]")

    def say(self, text: str) -> None:
        """Prints a line of rich's markup."""
        self.out.print(f"  {text}", soft_wrap=True)

    def show(self, words: Sequence[str]) -> None:
        """Prints a command as a user would type it."""
        line = shlex.join(words)
        for long, short in self.short.items():
            line = line.replace(long, short)
        self.say(f"[green]$ {escape(line)}[/]")

    def run(self, *command: object) -> str:
        """Shows and runs a command; returns its output. ClickException if it fails."""
        self.show([str(word) for word in command])
        return self.quiet(*command)

    def quiet(self, *command: object, cwd: Path | None = None, url: str = "") -> str:
        """Like `run`, without showing the command."""
        words = [str(word) for word in command]
        env = {**os.environ, **({"SHMBRIDGE_URL": url} if url else {})}
        with self.out.status(Path(words[0]).name):
            done = subprocess.run(
                words, cwd=cwd or self.directory, env=env, text=True, check=False,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
        if done.returncode:
            raise click.ClickException(
                f"{words[0]} ended with {done.returncode}:\n{done.stdout.strip()}"
            )
        return done.stdout

    @contextmanager
    def serve(self, name: str, *options: object, cwd: Path | None = None) -> Iterator[str]:
        """Runs `shmbridge serve` in its own process during the block. Yields the URL."""
        words = ["serve", name, *map(str, options)]
        self.show(["shmbridge", *words])
        url = name if "://" in name else f"shm://{name}"
        small = SMALL if url.startswith("shm:") else ()
        command = [sys.executable, "-m", "shmbridge.cli", *words, *small, "--until-idle", "60"]
        # Nothing beside the installed policy.py.
        env = {
            **os.environ,
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        host = subprocess.Popen(
            command, cwd=cwd or self.directory, env=env, text=True, stdout=subprocess.PIPE
        )
        assert host.stdout
        try:
            if not host.stdout.readline():
                raise click.ClickException("the host did not start")  # and has said why
            yield url
        finally:
            host.terminate()
            host.stdout.read()
            host.wait()
