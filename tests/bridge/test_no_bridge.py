"""What is no bridge of ours, below a name of ours."""

import os
import shutil
import struct
import textwrap

import pytest
from support.bridges import DIES, shm_path
from support.processes import ScriptedRunner, run_with_shm

import shmbridge
from shmbridge import (
    CorruptError,
    Host,
    IncompatibleError,
    InUseError,
    NoHostError,
    NotPermittedError,
    connect,
)
from shmbridge._bridge import segment


def copy_of_a_segment(name, python):
    """The bytes of a live segment, from another process."""
    other = python(
        """
        import sys, shmbridge
        with shmbridge.Host(sys.argv[1], channels=1):
            print("made", flush=True)
            sys.stdin.readline()
        """,
        name,
    )
    other.line()
    data = shm_path(name).read_bytes()
    other.say()
    other.end()
    return data


@pytest.fixture
def planted(name):
    """planted(bytes): a segment of these bytes whose host seems to live."""
    handles = []

    def plant(data):
        path = shm_path(name)
        path.write_bytes(data)
        path.chmod(0o600)
        handles.append(os.open(path, os.O_RDWR))
        from shmbridge._native import lib

        assert lib.shmb_peer_take(handles[-1], 0)

    yield plant
    for fd in handles:
        os.close(fd)
    shm_path(name).unlink(missing_ok=True)


@pytest.mark.parametrize(
    "garbage",
    [b"", b"x", b"\0" * 255, b"\0" * 4096, b"\xff" * 1_000_000, bytes(range(256)) * 100],
    ids=["empty", "a byte", "short", "zeros", "ones", "pattern"],
)
def test_a_garbage_segment_is_refused_by_runners_and_replaced_by_a_host(name, planted, garbage):
    shm_path(name).write_bytes(garbage)
    shm_path(name).chmod(0o600)
    with pytest.raises((CorruptError, NoHostError)) as caught:
        connect(name, connect_timeout=0)
    assert name in str(caught.value)
    with Host(name):
        pass
    planted(garbage)
    with pytest.raises(InUseError):
        Host(name)
    with pytest.raises(CorruptError):
        connect(name, connect_timeout=0)


def test_another_version_is_refused_and_both_are_named(name, python, planted):
    data = bytearray(copy_of_a_segment(name, python))
    data[8:12] = struct.pack("=I", 77)
    planted(data)
    with pytest.raises(IncompatibleError, match="uses version 77 .* this library version 3"):
        connect(name, connect_timeout=1000)
    data[8:16] = struct.pack("=II", 1, 1 << 5)
    shm_path(name).write_bytes(data)
    with pytest.raises(IncompatibleError, match="features 20"):
        connect(name, connect_timeout=1000)


def test_a_link_is_not_followed(name, tmp_path):
    target = tmp_path / "precious"
    target.write_bytes(b"precious")
    shm_path(name).symlink_to(target)
    try:
        with pytest.raises(shmbridge.ShmbridgeError):
            connect(name, connect_timeout=0)
        with pytest.raises(shmbridge.ShmbridgeError):
            Host(name)
        segment.gc()
        assert target.read_bytes() == b"precious"
    finally:
        shm_path(name).unlink(missing_ok=True)


def test_a_runner_with_another_dev_shm_finds_no_host(name, serve, python):
    """As in a container that does not share it: the same process ids, but another mount."""
    code = "import sys, shmbridge; print(shmbridge.connect(sys.argv[1]).evaluate({'x': 1}))"
    with serve(lambda request: request["x"] + 1):
        assert python(code, name).end() == (0, "2")
        assert "NoHostError" in run_with_shm("size=1m", code, name).stderr


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become someone else")


@as_root
def test_another_users_bridge_is_refused_and_left_alone(name, python, shm_files):
    other = (
        "import os\nshmbridge.Host  # imported while Python's own files can be read\n"
        "os.setgid(65534)\nos.setuid(65534)\n"
    )
    host = python("import signal, shmbridge\n" + other + textwrap.dedent(DIES), name, cwd="/")
    assert host.line() == "made"
    for _ in range(2):
        with pytest.raises(
            NotPermittedError,
            match="belongs to user 65534, expected 0: run host and runner as one user",
        ):
            connect(name, connect_timeout=1000)
        with pytest.raises((InUseError, NotPermittedError)):
            Host(name)
        assert str(shm_path(name)) not in segment.gc() and f"shmb.{name}" in shm_files()
        if host.poll() is None:
            host.say()  # dies
            host.wait()
    outsider = python(
        "import sys, shmbridge._bridge.segment\n"
        + other
        + "print([f for f in shmbridge._bridge.segment.gc() if sys.argv[1] in f])",
        name,
        cwd="/",
    )
    assert outsider.end() == (0, f"['/dev/shm/shmb.{name}']")


@as_root
@pytest.mark.parametrize(
    ("url", "variable"),
    [
        ("-", "SHMBRIDGE_URL"),
        ("shm://x", "SHMBRIDGE_DIR"),
        ("toy://x", "SHMBRIDGE_PYTHON"),
        ("toy://x", "VIRTUAL_ENV"),
        ("onnx:///dev/null", "SHMBRIDGE_ONNXRUNTIME"),
        ("tflite:///dev/null", "SHMBRIDGE_LITERT"),
    ],
)
def test_a_privileged_program_ignores_the_environment(tmp_path, scripted_runner, url, variable):
    """Set-uid, set-gid, or with a file capability."""
    if os.statvfs(tmp_path).f_flag & os.ST_NOSUID:
        pytest.skip("set-uid programs have no effect in this file system")
    program, answers = shutil.copy(scripted_runner, tmp_path), []
    os.chmod(tmp_path, 0o755)
    nobody = {"user": 65534, "group": 65534, "extra_groups": [], "cwd": tmp_path}
    version_2_effective, net_bind_service = 0x02000001, 1 << 10
    for mode in (0o755, 0o4755, 0o2755, "capability"):
        os.chmod(program, 0o755 if mode == "capability" else mode)
        if mode == "capability":
            words = struct.pack("<5I", version_2_effective, net_bind_service, 0, 0, 0)
            os.setxattr(program, "security.capability", words)
        environment = os.environ | {variable: "/planted"}
        with ScriptedRunner(f"./{os.path.basename(program)}", env=environment, **nobody) as runner:
            answers.append(runner.do("open", url))
            runner.stdin.close()
    assert ["planted" in answer for answer in answers] == [True, False, False, False], answers


@as_root
def test_root_s_bridge_is_not_permitted_to_another_user(name, python):
    code = """
        import os, sys, shmbridge, shmbridge._bridge.overview
        shmbridge.Host  # imported while Python's own files can be read
        os.setgid(65534); os.setuid(65534)
        for what in (lambda: shmbridge.connect(sys.argv[1], connect_timeout=0),
            lambda: shmbridge.Host(sys.argv[1])):
            try:
                what()
            except shmbridge.NotPermittedError as error:
                print("another user" in str(error))
        print([file for file in shmbridge._bridge.segment.gc() if sys.argv[1] in file])
        print([bridge for bridge in shmbridge._bridge.overview.bridges()
               if bridge.name == sys.argv[1]])
    """
    with Host(name):
        assert python(code, name, cwd="/").end() == (0, "True\nTrue\n[]\n[]")
