"""A sandbox that refuses a system call costs what docs/troubleshooting.md says."""

import platform
import subprocess
import sys

import pytest
from support.stock import clang, environment, run_words

pytestmark = pytest.mark.usefixtures("nothing_is_left")

NUMBERS = {"memfd_create": {"x86_64": 319, "aarch64": 279}}
REFUSE = """
import ctypes, os, struct, sys
# Load the number; if it is this one, EPERM (1); else allow.
code = [(0x20, 0, 0, 0), (0x15, 0, 1, int(sys.argv[1])), (6, 0, 0, 0x50001), (6, 0, 0, 0x7FFF0000)]
filters = b"".join(struct.pack("HBBI", *each) for each in code)
buffer = ctypes.create_string_buffer(filters, len(filters))
class Program(ctypes.Structure):
    _fields_ = [("count", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
program = Program(len(code), ctypes.addressof(buffer))
prctl = ctypes.CDLL(None).prctl
assert prctl(38, 1, 0, 0, 0) == 0 and prctl(22, 2, ctypes.byref(program)) == 0
os.execvp(sys.argv[2], sys.argv[2:])
"""


@pytest.mark.parametrize("call", NUMBERS)
def test_compilation_with_a_policy_needs_no(call, tmp_path):
    number = NUMBERS[call][platform.machine()]
    words = [*run_words("inline,priority", "advise", "-v"), *clang(22, tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", REFUSE, str(number), *words],
        env=environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0 and (tmp_path / "out.o").exists()
    assert done.stderr.startswith("shmbridge: the policy made "), done.stderr
    assert "compiling without" not in done.stderr
