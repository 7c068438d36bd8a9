"""python -m shmbridge.cli: the command where no script of that name is on the PATH."""

from shmbridge.cli import program

program()
