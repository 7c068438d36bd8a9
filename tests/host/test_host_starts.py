"""Hosts that start without room, descriptors or locks, start again, or with options in their
URL."""

import os
import re

import pytest
from support.processes import run_with_shm

from shmbridge import Host, InvalidError
from shmbridge._bridge import overview

# ---- A full /dev/shm ----


def test_a_full_shm_is_an_error_at_start_that_says_what_to_do_and_leaves_nothing(name):
    """In a mount namespace with a /dev/shm of 1 MiB."""
    code = """
        import os, sys, shmbridge
        try:
            shmbridge.Host(sys.argv[1])
        except shmbridge.SystemCallError as error:
            print(error)
        print(os.listdir("/dev/shm"))
        with shmbridge.Host(sys.argv[1], channels=1, request_bytes=1 << 16) as host:
            print(len(os.listdir("/dev/shm")))
        print(os.listdir("/dev/shm"))
        files = [open(f"/dev/shm/{i}", "w") for i in range(60)]  # no inode is left
        try:
            shmbridge.Host(sys.argv[1], channels=1, request_bytes=1 << 16)
        except shmbridge.SystemCallError as error:
            print(error)
        print(len(os.listdir("/dev/shm")))
    """
    done = run_with_shm("size=1m,nr_inodes=62", code, name)
    assert done.returncode == 0, done.stderr
    first, files, with_host, after, second, last = done.stdout.splitlines()
    assert "posix_fallocate: No space" in first and "--shm-size" in first
    needed, free = map(
        int, re.search(r"\((\d+) bytes are needed, (\d+) are free\)", first).groups()
    )
    assert free <= 1 << 20 < needed < 40 << 20  # not all slots at once, nor what is left afterwards
    assert (files, with_host, after, last) == ("[]", "1", "[]", "60")
    assert "shm_open: No space" in second and "nr_inodes" in second


@pytest.mark.parametrize(
    "options, before, call, remedy",
    [
        ("size=1m", "mount -t tmpfs none /dev", "shm_open: No such file", "mount a tmpfs there"),
        ("size=1m,ro", "true", "shm_open: Read-only file system", "mount it writable"),
        ("size=4m,huge=always", "true", "posix_fallocate: No space", "without huge=always"),
    ],
    ids=["missing", "read-only", "huge"],
)
def test_a_shm_that_cannot_hold_a_bridge_is_named_with_a_remedy(
    name, options, before, call, remedy
):
    code = f"""
        import os, sys, shmbridge
        assert not os.system({before!r})
        try:
            shmbridge.Host(sys.argv[1], channels=4, request_bytes=1 << 16)
        except shmbridge.SystemCallError as error:
            print(error)
    """
    done = run_with_shm(options, code, name)
    assert f"cannot create a bridge in /dev/shm: {call}" in done.stdout, done.stderr
    assert re.search(r"\d+ bytes are needed", done.stdout) and remedy in done.stdout


def test_a_host_without_descriptors_says_so_and_leaves_nothing(name, python, shm_files):
    code = """
        import resource, sys, shmbridge
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        import signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            shmbridge.Host(sys.argv[1])
        except shmbridge.SystemCallError as error:
            print(error)
    """
    status, out = python(code, name).end()
    assert status == 0 and "posix_fallocate: File too large" in out and not shm_files()


# ---- A sandbox ----

FORBID_LOCKS = """
    import ctypes, platform, struct
    def step(code, jt, jf, k):
        return struct.pack("HBBI", code, jt, jf, k)
    fcntl = {"x86_64": 72, "aarch64": 25}[platform.machine()]
    setlk, refuse, allow = 37, 0x50000 | 1, 0x7FFF0000
    steps = [step(0x20, 0, 0, 0), step(0x15, 0, 3, fcntl), step(0x20, 0, 0, 24),
        step(0x15, 0, 1, setlk), step(6, 0, 0, refuse), step(6, 0, 0, allow)]
    code = ctypes.create_string_buffer(b"".join(steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps),
        ctypes.addressof(code)))
    prctl = ctypes.CDLL(None).prctl
    assert prctl(38, 1, 0, 0, 0) == 0 and prctl(22, 2, program) == 0
"""


def test_a_sandbox_without_locks_is_named_and_nothing_is_left(name, python):
    host = python(
        FORBID_LOCKS
        + """
    import sys, shmbridge
    try:
        shmbridge.Host(sys.argv[1])
    except shmbridge.SystemCallError as error:
        print(error, flush=True)
    """,
        name,
    )
    status, said = host.end()
    assert status == 0 and "seccomp" in said and "Operation not permitted" in said
    assert not [file for file in os.listdir("/dev/shm") if name in file]


# ---- Options in a host's URL ----


def test_a_hosts_url_takes_options_which_win(name):
    url = (
        f"shm://{name}?channels=3&slots=4&request_bytes=64K&advice_bytes=4096&header_bytes=1K&"
        "wait=block&until_idle=50ms"
    )
    with Host(url, channels=5, until_idle=1000) as host:
        assert (host.name, host.url) == (name, f"shm://{name}")
        (info,) = [bridge for bridge in overview.bridges() if bridge.name == name]
        assert (len(info.channels), info.request_bytes, info.advice_bytes) == (3, 64 << 10, 4096)
        assert list(host) == []
    with Host(f"{name}?channels=2", request_bytes="4K") as host:
        assert host.name == name and overview.bridges(name)[0].request_bytes == 4096
    with pytest.raises(InvalidError, match='whole numbers, or texts such as "64K"'):
        Host(name, slots=2.5)


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("chanels=3", 'unknown option "chanels": expected one of channels, slots, request_bytes'),
        ("channels=many", "channels=many: expected a whole number"),
        ("request_bytes=64Q", "request_bytes=64Q: expected a number of bytes, as 65536, 64K or 1M"),
        ("until_idle=soon", "until_idle=soon: expected seconds, as 0.5, 50ms, 10us or inf"),
        ("deadline=0", "deadline=0.0: expected seconds, more than 0"),
        ("channels=300", "1 to 256 channels"),
        ("wait=never", "wait='never': expected adaptive, spin, block"),
        ("channels", "channels=: expected a whole number"),
    ],
)
def test_a_hosts_url_with_options_that_make_no_sense_is_an_error(name, option, says):
    with pytest.raises(InvalidError, match=says):
        Host(f"shm://{name}?{option}")
