"""Programs that are called like compilers."""

import os
import sysconfig

import pytest

# No shm:// URL: for these a run looks for the host before it starts the compiler.
CONNECT = ["--connect", "pipe:///nobody/is/here"]
SHMBRIDGE = os.path.join(sysconfig.get_path("scripts"), "shmbridge")
PYTHON = f"{SHMBRIDGE}-python"  # what the command leaves to Python
PLAIN = "echo $#; exit 3"  # prints how many arguments it got: none, unless flags were added
# Native: without Python, which is so with a host that runs already.
everywhere = pytest.mark.parametrize("transport", ["native", "preload", "pipes"], indirect=True)
# What is done before there is a channel: the transport makes no difference.
preload = pytest.mark.parametrize("transport", ["preload"], indirect=True)


def ended(process, text=None):
    """(exit status, stdout, stderr)"""
    out, err = process.communicate(text, timeout=60)
    return process.returncode, out, err
