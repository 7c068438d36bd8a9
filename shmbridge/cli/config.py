"""shmbridge config: what a compiler needs to build against the installed library."""

import click

import shmbridge
from shmbridge import _config

# What can be asked for, in the order it is printed.
ANSWERS = {
    "cflags": (_config.cflags, "compiler flags"),
    "libs": (_config.libs, "linker flags, with an rpath, so that the program starts"),
    "cmakedir": (lambda: _config.prefix() / "lib/cmake/shmbridge", "for cmake -Dshmbridge_DIR=…"),
    "pkgconfigdir": (lambda: _config.prefix() / "lib/pkgconfig", "for PKG_CONFIG_PATH=…"),
    "prefix": (_config.prefix, "the directory of include/ and lib/"),
    "examples": (_config.examples, "the directory of the example compilers' sources"),
    "version": (lambda: shmbridge.__version__, "the library's version"),
}


@click.command()
def config(**wanted: bool) -> None:
    """Print how to build against the installed library.

    Prints one line for each option, in shell quoting; without options, all values with names.
    """
    for name, (answer, _) in ANSWERS.items():
        if wanted[name]:
            click.echo(answer())
        elif not any(wanted.values()):
            click.echo(f"{name + ':':14}{answer()}")


for _name, (_, _help) in reversed(ANSWERS.items()):
    config = click.option(f"--{_name}", is_flag=True, help=_help)(config)
