"""Names and sizes of bridges, and a name in use."""

import os

import pytest
from support.bridges import shm_path

from shmbridge import Host, InUseError, InvalidError, connect
from shmbridge._bridge import names, overview

# ---- Names ----


@pytest.mark.parametrize(
    "bad", ["", "a b", "a/b", ".a", "..", "ä", "a\n", "a~b", "x" * 101, "shm://", "a\0b"]
)
def test_a_name_that_is_none_is_an_error(bad):
    with pytest.raises(
        InvalidError, match="is not a bridge name: expected shm://NAME or NAME of 1 to 100"
    ):
        Host(bad)


def test_a_long_name_of_every_allowed_character(new_name):
    name = (new_name() + "_A.z-09" + "x" * 100)[:100]
    with Host(f"shm://{name}") as host:
        assert host.name == name and [info.name for info in overview.bridges()].count(name) == 1
    assert not shm_path(name).exists()


@pytest.mark.parametrize(
    "options",
    [
        *({"channels": count} for count in (0, 257, -1)),
        *({"slots": count} for count in (1, 3, 64)),
        *({"request_bytes": size} for size in (0, 1 << 41)),
        *({"advice_bytes": -1}, {"header_bytes": 1 << 40}),
    ],
    ids=str,
)
def test_sizes_that_make_no_sense_are_an_error_and_leave_nothing(name, options, shm_files):
    with pytest.raises(InvalidError, match="expected 1 to 256 channels|whole numbers"):
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
            status = os.stat(names.SHM / file)
            assert status.st_mode & 0o777 == 0o600 and status.st_uid == os.geteuid()
        assert len(shm_files()) == 1


# ---- A name in use ----


def test_a_live_hosts_name_is_in_use(name):
    with Host(name) as host:
        for _ in range(3):
            with pytest.raises(
                InUseError, match=rf'an open host of this process is named "{name}"'
            ):
                Host(name)
        assert shm_path(name).exists() and not host._closed
    Host(name).close()


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
    """One process collects all the time, the other makes hosts, whose predecessors were killed half
    of the time."""
    collector = python(
        "import shmbridge._bridge.segment\nprint('ready', flush=True)\nwhile True: "
        "shmbridge._bridge.segment.gc()"
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
