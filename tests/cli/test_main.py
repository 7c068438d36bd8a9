"""The command itself: help, version, errors, config."""

import os
import signal
import subprocess
from dataclasses import make_dataclass

import click
import pytest
from click.testing import CliRunner
from support.cli import SHMBRIDGE as AS_MODULE
from support.cli import refused, run
from support.run import SHMBRIDGE

import shmbridge
from shmbridge.cli import main
from shmbridge.cli._option_types import option, takes
from shmbridge.errors import InvalidError


def test_help_lists_the_commands():
    said = run("--help").stdout
    assert "..." not in said.partition("Commands:")[2]  # no summary is cut off
    assert all(command in said for command in ("demo", "serve", "ls", "gc", "config"))


def test_version_is_the_librarys():
    assert run("--version").stdout.strip() == shmbridge.__version__
    assert run("config", "--version").stdout.strip() == shmbridge.__version__


def test_what_started_it_to_begin_within_a_time_gives_it_more_once_it_has_begun():
    read, write = os.pipe()
    signal.alarm(1000)
    assert CliRunner().invoke(main, ["--begun", str(write), "config"]).exit_code == 0
    assert (os.read(read, 10), signal.alarm(0)) == (b"\n", 0)
    os.close(read)


def test_an_unknown_command_is_a_usage_error():
    assert "No such command" in refused(2, "serv")


@pytest.mark.parametrize(
    ("raised", "status", "says"),
    [
        (KeyboardInterrupt(), 130, ""),
        (InvalidError("two\nlines"), 1, "Error: two lines\n"),
        (OSError(13, "Denied"), 1, "Error: [Errno 13] Denied\n"),
    ],
    ids=["Ctrl-C", "ours", "the system's"],
)
def test_what_a_command_raises_is_its_status_and_one_line(monkeypatch, raised, status, says):
    def config():
        raise raised

    monkeypatch.setattr("shmbridge.cli.config.config", click.command(config))
    done = CliRunner().invoke(main, ["config"])
    assert (done.exit_code, done.output) == (status, says)


MODULE = " ".join(AS_MODULE)
FULL, CLOSED = "/dev/full [Errno 28] No space left on device", "&- [Errno 9] Bad file descriptor"


@pytest.mark.parametrize(
    ("program", "to", "buffered"),
    [(SHMBRIDGE, FULL, ""), (SHMBRIDGE, FULL, "1"), (SHMBRIDGE, CLOSED, ""), (MODULE, CLOSED, "1")],
    ids=["full", "full and unbuffered", "closed", "closed for the module"],
)
@pytest.mark.parametrize("words", ["--version", "--help", "ls --help", "config", "gc nobody"])
def test_output_that_cannot_be_written_is_one_line_and_a_failure(words, program, to, buffered):
    to, _, error = to.partition(" ")
    done = subprocess.run(
        ["sh", "-c", f"exec {program} {words} >{to}"],
        env={**os.environ, "PYTHONUNBUFFERED": buffered},
        cwd="/",
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    expected = f"Error: stdout or a file cannot be written: {error}\n"
    assert (done.returncode, done.stderr) == (1, expected)


def test_config_alone_prints_everything():
    said = run("config").stdout
    assert all(
        f"{what}:" in said
        for what in ("cflags", "libs", "cmakedir", "pkgconfigdir", "prefix", "examples", "version")
    )


@pytest.mark.parametrize("kind", [bool, "bool"])  # "bool": of a module that postpones annotations
def test_an_option_that_is_a_bool_is_a_flag(kind):
    options = make_dataclass("Options", [("quiet", kind, option("Says nothing."))])
    command = click.command(takes(options)(lambda options: click.echo(options.quiet)))
    assert CliRunner().invoke(command, ["--quiet"]).output == "True\n"
