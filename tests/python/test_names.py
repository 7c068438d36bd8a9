"""Names and lifetimes: who may make, take over and attach what below /dev/shm."""

import os
import shutil
import signal
import struct
import subprocess
import sys
import textwrap

import pytest

import shmbridge
from shmbridge import (
    CorruptError,
    Host,
    IncompatibleError,
    InUseError,
    InvalidError,
    NoHostError,
    NotPermittedError,
    SystemCallError,
    connect,
    segment,
)

DIES = """
    import os, signal, sys, shmbridge
    host = shmbridge.Host(sys.argv[1])
    print("made", flush=True)
    sys.stdin.readline()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def dead_host(name, python):
    """Leaves what a killed host leaves."""

    def die():
        host = python(DIES, name)
        assert host.line() == "made"
        host.say()
        host.wait()

    return die


def shm_path(name):
    return segment.SHM / f"shmb.{name}"


# ---- Names ----


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "a b",
        "a/b",
        ".a",
        "..",
        "ä",
        "a\n",
        "a~b",
        "x" * 101,
        "shm://",
        "shm://a?wait=spin",
        "a\0b",
    ],
)
def test_a_name_that_is_none_is_an_error(bad):
    with pytest.raises(
        InvalidError, match="is no name of a bridge: expected shm://NAME or NAME of 1 to 100"
    ):
        Host(bad)


def test_a_long_name_of_every_allowed_character(new_name):
    name = (new_name() + "_A.z-09" + "x" * 100)[:100]
    with Host(f"shm://{name}") as host:
        assert (
            host.name == name
            and [info.name for info in shmbridge.segment.bridges()].count(name) == 1
        )
    assert not shm_path(name).exists()


@pytest.mark.parametrize(
    "options",
    [
        {"channels": 0},
        {"channels": 257},
        {"channels": -1},
        {"slots": 1},
        {"slots": 3},
        {"slots": 64},
        {"request_bytes": 0},
        {"advice_bytes": -1},
        {"request_bytes": 1 << 41},
        {"header_bytes": 1 << 40},
    ],
    ids=str,
)
def test_sizes_that_make_no_sense_are_an_error_and_leave_nothing(name, options, shm_files):
    with pytest.raises(InvalidError, match="expected 1 to 256 channels|positive numbers"):
        Host(name, **options)
    assert not shm_files()


@pytest.mark.parametrize(
    "options",
    [
        {"channels": 1, "slots": 32},
        {"channels": 256, "request_bytes": 1, "advice_bytes": 1, "header_bytes": 1 << 10},
    ],
)
def test_the_largest_and_smallest_sizes_work(serve, options):
    with serve(lambda request: 1, **options) as host, connect(host.url) as runner:
        assert runner.evaluate({"x": True}) == 1


def test_files_are_the_users_alone(name, shm_files):
    with Host(name):
        for file in shm_files():
            status = os.stat(segment.SHM / file)
            assert status.st_mode & 0o777 == 0o600 and status.st_uid == os.geteuid()
        assert len(shm_files()) == 18


# ---- A name in use ----


def test_a_live_hosts_name_is_in_use(name):
    with Host(name) as host:
        for _ in range(3):
            with pytest.raises(
                InUseError,
                match=rf'a live host \(process {os.getpid()}\) is named "{name}" already: close it',
            ):
                Host(name)
        assert shm_path(name).exists() and not host._closed
    Host(name).close()


def test_a_new_host_takes_over_what_a_killed_one_left(name, dead_host, shm_files, in_thread):
    for _ in range(3):
        dead_host()
        left = shm_files()
        assert f"shmb.{name}" in left and len(left) == 18
        with pytest.raises(NoHostError, match="has died and left its segment"):
            connect(name, connect_timeout=0)
    with Host(name) as host:
        assert not left & (shm_files() - {f"shmb.{name}"})
        asking = in_thread(lambda: connect(name).evaluate({"x": 1}))
        host.receive(timeout=30).reply(2)
        assert asking.result() == 2
    assert not shm_files()


def test_of_two_hosts_that_race_for_a_dead_ones_name_one_wins(name, dead_host, python):
    racer = """
        import sys, shmbridge
        print("ready", flush=True)
        for line in sys.stdin:
            try:
                host = shmbridge.Host(sys.argv[1], channels=1)
                print("won", flush=True)
                sys.stdin.readline()
                host.close()
                print("closed", flush=True)
            except shmbridge.InUseError:
                print("lost", flush=True)
    """
    racers = [python(racer, name) for _ in range(2)]
    assert [r.line() for r in racers] == ["ready"] * 2
    for _ in range(15):
        dead_host()
        for r in racers:
            r.say()
        outcomes = [r.line() for r in racers]
        assert sorted(outcomes) == ["lost", "won"]
        winner = racers[outcomes.index("won")]
        winner.say()
        assert winner.line() == "closed"


def test_gc_never_hurts_a_host_that_is_being_made(name, python):
    """One process collects all the time, the other makes hosts, whose predecessors were killed half of the time."""
    collector = python(
        "import shmbridge.segment\nprint('ready', flush=True)\nwhile True: shmbridge.segment.gc()"
    )
    assert collector.line() == "ready"
    maker = """
        import os, signal, sys, shmbridge
        for i in range(15):
            child = os.fork()
            if not child:
                shmbridge.Host(sys.argv[1], channels=1)
                os.kill(os.getpid(), signal.SIGKILL)
            os.waitpid(child, 0)
            for k in range(10):
                with shmbridge.Host(sys.argv[1], channels=1) as host:
                    assert os.path.exists("/dev/shm/shmb." + sys.argv[1])
        print("done")
    """
    assert python(maker, name).end() == (0, "done")
    assert collector.poll() is None


# ---- ls and gc ----


def test_bridges_shows_the_living_and_the_dead(name, dead_host, in_thread):
    def mine():
        return [info for info in segment.bridges() if info.name == name]

    assert mine() == []
    with Host(name, channels=3) as host:
        (info,) = mine()
        assert (
            info.alive
            and info.pid == os.getpid()
            and info.request_bytes == 1 << 20
            and info.advice_bytes == 1 << 16
        )
        assert info.size == shm_path(name).stat().st_size and len(info.session) == 32
        assert [(c.state, c.pid, c.served) for c in info.channels] == [("free", 0, 0)] * 3
        connecting = in_thread(connect, name)
        while not host.runners:
            host.receive(timeout=0.01)
        runner = connecting.result()
        asking = in_thread(runner.evaluate, {"x": 1})
        host.receive(timeout=30).reply(2)
        assert asking.result() == 2
        (info,) = mine()
        assert [(c.state, c.pid, c.served) for c in info.channels][:1] == [
            ("attached", os.getpid(), 1)
        ] and info.served == 1
        runner.close()
    dead_host()
    (info,) = mine()
    assert not info.alive
    assert f"shmb.{name}" in segment.gc()
    assert mine() == []


def test_gc_removes_the_dead_and_leaves_the_living(name, new_name, dead_host, shm_files):
    other = new_name()
    with Host(other) as living:
        dead_host()
        removed = segment.gc()
        assert f"shmb.{name}" in removed and f"shmb.{other}" not in removed
        assert not shm_files() and shm_path(other).exists()
        assert not any(living._session in file for file in removed)
    assert f"shmb.{name}" not in segment.gc()


def test_gc_removes_what_has_a_name_like_ours_but_no_host(name):
    path = shm_path(name)
    path.write_bytes(b"garbage")
    path.chmod(0o600)
    assert path.name in segment.gc() and not path.exists()
    orphan = segment.SHM / f"sem.shmb-{os.urandom(16).hex()}-h"
    orphan.write_bytes(bytes(32))
    assert orphan.name in segment.gc() and not orphan.exists()
    strange = segment.SHM / "shmb.~~~"
    strange.write_bytes(b"")
    segment.gc()
    assert strange.exists()
    strange.unlink()


def test_a_removed_bridge_is_no_trouble(name, serve):
    """Someone deletes the files of a live host: its runners go on, and closing finds nothing to do."""
    with serve(lambda request: 1) as host, connect(name) as runner:
        shm_path(name).unlink()
        assert runner.evaluate({}) == 1
        with pytest.raises(NoHostError):
            connect(name, connect_timeout=0)
        with Host(name) as second:
            host.close()
            assert shm_path(name).exists() and not second._closed


# ---- What is no bridge of ours ----


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

    def plant(data, mode=0o600):
        path = shm_path(name)
        path.write_bytes(data)
        path.chmod(mode)
        handles.append(os.open(path, os.O_RDWR))
        from shmbridge._native import lib

        assert lib.shmb_peer_lock(handles[-1], 0)

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
    with pytest.raises(IncompatibleError, match="speaks version 77 .* this library version 1"):
        connect(name, connect_timeout=1000)
    data[8:16] = struct.pack("=II", 1, 1 << 5)
    shm_path(name).write_bytes(data)
    with pytest.raises(IncompatibleError, match="features 20"):
        connect(name, connect_timeout=1000)


@pytest.mark.parametrize("at", range(16, 112, 4))
def test_any_changed_number_of_the_superblock_is_refused_or_harmless(name, python, planted, at):
    data = bytearray(copy_of_a_segment(name, python))
    for value in (0, 1, 0xFFFFFFFF, 0x80000000):
        changed = data.copy()
        changed[at : at + 4] = struct.pack("=I", value)
        shm_path(name).unlink(missing_ok=True)
        planted(changed)
        with pytest.raises((CorruptError, NoHostError, shmbridge.DeadlineError)):
            connect(name, connect_timeout=0)


def test_a_truncated_segment_is_refused(name, python, planted):
    data = copy_of_a_segment(name, python)
    for size in (len(data) - 1, len(data) // 2, 300):
        shm_path(name).unlink(missing_ok=True)
        planted(data[:size])
        with pytest.raises(CorruptError):
            connect(name, connect_timeout=0)


def test_a_segment_that_others_may_write_is_refused(name, python, planted):
    planted(copy_of_a_segment(name, python), mode=0o666)
    with pytest.raises(NotPermittedError, match="has mode 666, expected 600"):
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


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become someone else")


@as_root
def test_another_users_bridge_is_refused_and_left_alone(name, python, shm_files):
    other = "import os\nos.setgid(65534)\nos.setuid(65534)\n"
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
        assert f"shmb.{name}" not in segment.gc() and f"shmb.{name}" in shm_files()
        if host.poll() is None:
            host.say()  # dies
            host.wait()
    outsider = python(
        "import sys, shmbridge\n"
        + other
        + "print(sorted(f for f in shmbridge.segment.gc() if sys.argv[1] in f))",
        name,
        cwd="/",
    )
    assert outsider.end() == (0, f"['shmb.{name}']")


@as_root
def test_root_s_bridge_is_not_permitted_to_another_user(name, python):
    code = """
        import os, sys, shmbridge
        os.setgid(65534); os.setuid(65534)
        for what in (lambda: shmbridge.connect(sys.argv[1], connect_timeout=0), lambda: shmbridge.Host(sys.argv[1])):
            try:
                what()
            except shmbridge.NotPermittedError as error:
                print("another user" in str(error))
        print([file for file in shmbridge.segment.gc() if sys.argv[1] in file])
        print([bridge for bridge in shmbridge.segment.bridges() if bridge.name == sys.argv[1]])
    """
    with Host(name):
        assert python(code, name, cwd="/").end() == (0, "True\nTrue\n[]\n[]")


# ---- A full /dev/shm ----


def test_a_full_shm_is_an_error_at_start_that_says_what_to_do_and_leaves_nothing(name):
    """In a mount namespace with a /dev/shm of 1 MiB."""
    unshare = shutil.which("unshare")
    flags = ["-m"] if os.geteuid() == 0 else ["-Urm"]
    if (
        unshare is None
        or subprocess.run(
            [unshare, *flags, "mount", "-t", "tmpfs", "none", "/dev/shm"], capture_output=True
        ).returncode
    ):
        pytest.skip("this user may not mount a small /dev/shm")
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
        files = [open(f"/dev/shm/{i}", "w") for i in range(60)]  # no inodes for all the semaphores
        try:
            shmbridge.Host(sys.argv[1], channels=16, request_bytes=1 << 10, advice_bytes=1 << 10, header_bytes=1 << 10)
        except shmbridge.SystemCallError as error:
            print(error)
        print(len(os.listdir("/dev/shm")))
    """
    mount = 'mount -t tmpfs -o size=1m,nr_inodes=70 none /dev/shm && exec "$@"'
    done = subprocess.run(
        [
            unshare,
            *flags,
            "sh",
            "-c",
            mount,
            "sh",
            sys.executable,
            "-c",
            textwrap.dedent(code),
            name,
        ],
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    first, files, with_host, after, second, last = done.stdout.splitlines()
    assert "bytes, but /dev/shm has" in first and "shmbridge gc" in first and "--shm-size" in first
    assert (files, with_host, after, last) == ("[]", "3", "[]", "60")
    assert "cannot make the bridge's files below /dev/shm" in second


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
    assert status == 0 and "cannot make the bridge's files" in out and not shm_files()


# ---- A host that was restarted ----


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_runners_of_a_host_that_was_restarted_get_its_end_and_new_ones_connect(
    name, python, c_runner, number
):
    code = """
        import sys, shmbridge
        with shmbridge.Host(sys.argv[1]) as host:
            print("made", flush=True)
            host.serve(lambda request: int(sys.argv[2]))
    """
    old = python(code, name, 1)
    assert old.line() == "made"
    runners, c = [connect(name) for _ in range(3)], c_runner(name)
    assert [runner.evaluate({}) for runner in runners] == [1] * 3
    c.do("feature", "x", 5, 0, bytes(8).hex())
    assert c.do("i64") == "0 1"
    old.send_signal(number)
    old.wait()
    new = python(code, name, 2)
    assert new.line() == "made"
    error, status = (
        (shmbridge.HostGoneError, "9 ")
        if number == signal.SIGKILL
        else (shmbridge.ClosedError, "11 ")
    )
    for runner in runners:
        for _ in range(2):
            with pytest.raises(error):
                runner.evaluate({})
    c.do("feature", "x", 5, 0, bytes(8).hex())
    assert c.do("i64").startswith(status)
    assert c.do("open", name).startswith("0")
    c.do("feature", "x", 5, 0, bytes(8).hex())
    assert c.do("i64") == "0 2"
    with connect(name) as runner:
        assert runner.evaluate({}) == 2
    for runner in runners:
        runner.close()
    new.send_signal(signal.SIGINT)
    assert new.end()[0] == 0


def test_a_bridge_is_in_use_says_an_os_error_too():
    assert issubclass(SystemCallError, OSError) and issubclass(NotPermittedError, PermissionError)
