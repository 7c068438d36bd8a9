"""ls and gc: what dead hosts left is found and removed, what lives stays."""

import os
import shutil
import threading
import time

import pytest
from support.bridges import shm_path

from shmbridge import Host, InUseError, NoHostError, NotPermittedError, connect
from shmbridge._bridge import names, overview, segment
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
    assert str(shm_path(name)) in segment.gc()
    assert mine() == []


def test_gc_removes_the_dead_and_leaves_the_living(name, new_name, dead_host, shm_files):
    other = new_name()
    with Host(other):
        dead_host()
        removed = segment.gc()
        assert str(shm_path(name)) in removed and str(shm_path(other)) not in removed
        assert not shm_files() and shm_path(other).exists()
    assert str(shm_path(name)) not in segment.gc()


def test_gc_of_one_name_leaves_the_others_and_refuses_the_living(
    name, new_name, dead_host, shm_files
):
    dead_host()
    other = new_name()
    with Host(other), pytest.raises(InUseError, match="is named"):
        segment.gc(other)
    assert segment.gc(other) == [] and shm_files()
    assert str(shm_path(name)) in segment.gc(name) and not shm_files()
    assert segment.gc(name) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
def test_gc_of_a_name_says_whose_file_it_leaves_and_why(name, dead_host, python):
    dead_host()
    code = """
        import os, sys, shmbridge
        from shmbridge._bridge import segment
        os.setuid(65534)
        try:
            segment.gc(sys.argv[1])
        except shmbridge.ShmbridgeError as error:
            print(error)
    """
    with sweeper_of(name):  # gc in another test leaves it
        assert "belongs to user 0" in python(code, name, cwd="/").end()[1]
        os.chown(shm_path(name), 65534, -1)
    with pytest.raises(NotPermittedError, match="belongs to user 65534"):
        segment.gc(name)
    shm_path(name).chmod(0o200)
    assert "is yours, but" in (said := python(code, name, cwd="/").end()[1]) and "chmod 600" in said
    shm_path(name).unlink()


def sweeper_of(name):
    """A file that holds a sweeper's locks until it is closed."""
    file = shm_path(name).open("r+b")
    for byte in (lib.SWEEPER_BYTE, lib.HOST_BYTE):
        assert lib.shmb_peer_take(file.fileno(), byte)
    return file


def test_a_sweep_under_way_is_waited_for_and_a_stuck_one_is_not_for_ever(
    name, dead_host, monkeypatch
):
    dead_host()
    sweeper = sweeper_of(name)
    with monkeypatch.context() as patient:
        patient.setattr(segment, "SWEEP_SECONDS", 30)
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
    assert str(path) in segment.gc() and not path.exists()
    strange = names.SHM / "shmb.~~~"
    strange.write_bytes(b"")
    segment.gc()
    assert strange.exists()
    strange.unlink()


@pytest.mark.parametrize("gone", ["file", "directory"])
def test_a_host_whose_name_was_removed_says_so_and_ends_when_no_runner_is_left(
    gone, name, in_thread, caplog, tmp_path
):
    place = tmp_path / "bridges"
    place.mkdir(0o700)
    with Host(f"{place}/{name}") as host:
        loop = in_thread(host.serve, lambda request: 1)
        with connect(host.url) as runner:
            shutil.rmtree(place)
            if gone == "directory":
                place.write_text("a file")
            time.sleep(0.3)
            assert runner.evaluate({}) == 1
        loop.join(30)
        assert not loop.is_alive() and "RemoveIPC" in caplog.text


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
