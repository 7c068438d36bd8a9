"""ls and gc: what dead hosts left is found and removed, what lives stays."""

import os
import threading

import pytest
from support.bridges import shm_path

from shmbridge import Host, InUseError, NoHostError, connect
from shmbridge._bridge import overview, segment
from shmbridge._native import lib


def test_bridges_shows_the_living_and_the_dead(name, dead_host, in_thread):
    def mine():
        return [info for info in overview.bridges() if info.name == name]

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


def bells(session):
    return {path.name for path in segment.SHM.glob(f"sem.shmb-{session}-*")}


def rename_session(name, session):
    """What corruption, or someone with bad intent, may make of a segment's bytes."""
    with shm_path(name).open("r+b") as file:
        file.seek(24)
        file.write(bytes.fromhex(session))


@pytest.fixture
def living(new_name):
    with Host(new_name()) as host:
        before = bells(host._session)
        yield host
        assert bells(host._session) == before and len(before) == 17
    assert not bells(host._session)


@pytest.mark.parametrize("sweep", ["gc", "gc NAME", "take-over"])
@pytest.mark.parametrize("lie", ["bytes", "temporary name", "both"])
def test_a_dead_segment_that_names_a_live_bridges_session_costs_it_nothing(
    name, dead_host, living, sweep, lie
):
    dead_host()
    own = next(b.session for b in overview.bridges() if b.name == name)
    if lie != "temporary name":
        rename_session(name, living._session)
    if lie != "bytes":
        os.link(shm_path(name), shm_path(f"{name}~{living._session}"))
    if sweep == "take-over":
        Host(name).close()
    else:
        segment.gc(name if sweep == "gc NAME" else None)
    assert not shm_path(name).exists()
    segment.gc()  # what no segment names any more
    assert not bells(own) and not shm_path(f"{name}~{living._session}").exists()


def test_a_dead_segment_that_names_a_host_that_is_being_made_costs_it_nothing(
    name, new_name, dead_host
):
    dead_host()
    own = next(b.session for b in overview.bridges() if b.name == name)
    making = new_name()
    fd, session = segment._new_file(making)
    try:
        bell = segment.SHM / f"sem.shmb-{session}-h"
        bell.write_bytes(bytes(32))
        rename_session(name, session)
        segment.gc()
        assert bell.exists() and shm_path(f"{making}~{session}").exists()
    finally:
        os.close(fd)
    segment.gc()
    assert not bell.exists() and not bells(own)


def test_a_live_segment_with_an_overwritten_session_keeps_its_semaphores_until_its_end(
    name, new_name, dead_host
):
    dead_host()
    with Host(other := new_name()) as host:
        rename_session(other, os.urandom(16).hex())
        segment.gc()
        assert len(bells(host._session)) == 17
    assert not bells(host._session) and not shm_path(other).exists()
    segment.gc()


def test_gc_of_one_name_leaves_the_others_and_refuses_the_living(
    name, new_name, dead_host, shm_files, living
):
    dead_host()
    other = new_name()
    with pytest.raises(InUseError, match="is named"):
        segment.gc(living.name)
    assert segment.gc(other) == [] and shm_files()
    assert f"shmb.{name}" in segment.gc(name) and not shm_files()
    assert segment.gc(name) == []


def sweeper_of(name):
    """A file that holds a sweeper's locks until it is closed."""
    file = shm_path(name).open("r+b")
    for byte in (lib.SWEEPER_BYTE, lib.HOST_BYTE):
        assert lib.shmb_peer_lock(file.fileno(), byte)
    return file


def test_a_sweep_under_way_is_waited_for_and_a_stuck_one_is_not_for_ever(name, dead_host):
    dead_host()
    sweeper = sweeper_of(name)
    threading.Timer(0.1, sweeper.close).start()
    Host(name).close()
    dead_host()
    with sweeper_of(name), pytest.raises(InUseError):
        Host(name)
    Host(name).close()


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
    """Someone deletes the files of a live host: its runners go on, and closing finds nothing to
    do."""
    with serve(lambda request: 1) as host, connect(name) as runner:
        shm_path(name).unlink()
        assert runner.evaluate({}) == 1
        with pytest.raises(NoHostError):
            connect(name, connect_timeout=0)
        with Host(name) as second:
            host.close()
            assert shm_path(name).exists() and not second._closed


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
def test_files_of_another_user_change_nothing_about_which_semaphores_are_removed(name):
    session = os.urandom(16).hex()
    orphan = segment.SHM / f"sem.shmb-{session}-h"
    orphan.write_bytes(bytes(32))
    names_no_session = shm_path(name)
    names_this_session = shm_path(f"{name}~{session}")
    try:
        with names_no_session.open("w+b") as live, names_this_session.open("w+b") as also_live:
            for file in (live, also_live):
                os.fchown(file.fileno(), 12345, -1)
                assert lib.shmb_peer_lock(file.fileno(), lib.HOST_BYTE)
            assert orphan.name in segment.gc() and not orphan.exists()
            assert names_no_session.exists() and names_this_session.exists()
    finally:
        names_no_session.unlink()
        names_this_session.unlink()


def test_a_semaphore_that_cannot_be_removed_does_not_keep_the_others(name):
    with Host(name) as host:
        in_the_way = segment.SHM / f"sem.shmb-{host._session}-999"
        in_the_way.mkdir()
        session = host._session
    assert bells(session) == {in_the_way.name} and not shm_path(name).exists()
    in_the_way.rmdir()
