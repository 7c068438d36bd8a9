"""shmbridge compile: a model as a library that compilers call in their own process."""

import os
import signal
import tempfile
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import click

from shmbridge.cli._option_types import FILE, argument, option, takes
from shmbridge.cli._processes import on_signals
from shmbridge.errors import write_whole


def named_size(text: str) -> tuple[str, int]:
    """The type of --dim."""
    name, _, size = text.partition("=")
    if not name or not size.isdigit() or not int(size):
        raise click.BadParameter(f"{text!r}: expected NAME=SIZE, a size of at least 1")
    return name, int(size)


@dataclass(frozen=True)
class Options:
    model: Path = argument(type=click.Path(exists=True, path_type=Path))
    output: Path = option("The library to write.", "-o", "--output", type=FILE, required=True)
    sizes: tuple[tuple[str, int], ...] = option(
        "The size of an open dimension; NAME is INPUT:AXIS for a SavedModel.",
        "--dim",
        multiple=True,
        type=named_size,
        metavar="NAME=SIZE",
    )
    signature: str | None = option(
        "The signature of a SavedModel.  [default: serving_default]", metavar="KEY"
    )
    no_check: bool = option("Do not compare the result with MODEL.")

    @property
    def kind(self) -> str:
        """What the model looks like, as the module that compiles it is called."""
        if self.model.is_dir() and (self.model / "saved_model.pb").exists():
            return "tensorflow"
        if self.model.suffix == ".onnx":
            return "onnx"
        raise click.ClickException(
            f"{self.model}: expected a file .onnx or a TensorFlow SavedModel's folder. PyTorch "
            "models are exported to ONNX: shmbridge.training.torch.export_onnx"
        )

    def check(self) -> None:
        """Raises UsageError for options that conflict, ClickException for a file that cannot be
        written."""
        if self.signature and self.kind != "tensorflow":
            raise click.UsageError("--signature applies only to SavedModels: omit it")
        to = self.output
        if not os.access(to.parent, os.W_OK | os.X_OK):
            raise click.ClickException(
                f"{to}: expected a writable folder, found none at {to.parent}"
            )
        if to.exists() and to.samefile(self.model):
            raise click.ClickException(
                f"{to}: the model would be overwritten: expected another file"
            )


@click.command()
@takes(Options)
def compile(options: Options) -> None:
    """Compile a model to a library for aot://, without a runtime.

    MODEL is an ONNX file or a TensorFlow SavedModel. A compiler opens aot:///path/of/library.so
    instead of shm://NAME.

    \b
    The last lines report how the library compares with MODEL, and on which inputs:
        exact:             equal outputs
        within tolerance:  float16 2e-2, bfloat16 5e-2, float32 2e-4, float64 1e-9
                           of the output's greatest value, or of 1
        not checked:       MODEL's runtime accepted none of the inputs, or took too long
    A library that differs more is not written. Differences on NaN are only reported.
    """
    options.check()
    on_signals(signal.default_int_handler)  # it ends in order, and its folder goes
    with tempfile.TemporaryDirectory(prefix="shmbridge-compile-") as folder:
        build(options, folder)


def build(options: Options, folder: str) -> None:
    """Builds in the folder, and moves the results into place."""
    from shmbridge._compile.check import check
    from shmbridge._compile.toolchain import BuildDirectory, CompileError

    where, sizes = (options.model.absolute(), Path(folder)), dict(options.sizes)
    job = BuildDirectory(*where, sizes, options.signature)
    try:
        built = import_module(f"shmbridge._compile.{options.kind}").build(job)
        library = job.link(built)
        if not options.no_check:
            click.echo(check(built, library))
        write_whole(options.output, library.read_bytes())
    except CompileError as error:
        raise click.ClickException(str(error)) from error
