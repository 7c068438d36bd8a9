"""Hosts at pipe://PATH: their files, who talks, ends of all kinds, options."""

import contextlib
import os
import re
import shlex
import signal
import stat
import subprocess
import threading
from pathlib import Path

import pytest
from support.cli import MODELS, run
from support.processes import until

import shmbridge
from shmbridge import (
    ClosedError,
    ForkedError,
    Host,
    HostGoneError,
    InUseError,
    InvalidError,
    NotPermittedError,
    UnsupportedError,
    connect,
    hosts,
)
from shmbridge._bridge import overview


@pytest.fixture
def url(tmp_path):
    return f"pipe://{tmp_path}/p?serdes=flatbuffers"


def left(tmp_path):
    return sorted(path.name for path in tmp_path.iterdir())


# ---- Names and files ----


def test_a_host_is_made_by_its_scheme(url):
    with Host(url) as host:
        assert isinstance(host, Host) and type(host) is not Host
        assert host.url == url and url in repr(host)
        assert [bridge.name for bridge in overview.bridges() if bridge.name == host.name]


def test_a_scheme_that_nobody_has_is_unsupported():
    with pytest.raises(UnsupportedError, match="expected one of shm, .*llvm, pipe"):
        Host("telegraph://x")


def test_the_pipes_are_the_users_own_and_go_with_the_host(url, tmp_path):
    with Host(url) as host:
        assert left(tmp_path) == ["p.in", "p.out"]
        for name in left(tmp_path):
            found = (tmp_path / name).stat()
            assert stat.S_ISFIFO(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o600
        host.close()
        assert left(tmp_path) == []
        host.close()


def test_a_live_hosts_pipes_are_in_use(url, tmp_path):
    with Host(url):
        with pytest.raises(InUseError, match="a live host"):
            Host(url)
        assert left(tmp_path) == ["p.in", "p.out"]


@pytest.mark.parametrize("end", ["in", "out"])
def test_what_is_no_pipe_stays(url, tmp_path, end):
    (tmp_path / f"p.{end}").write_text("mine")
    with pytest.raises(InvalidError, match="expected no file, or a named pipe"):
        Host(url)
    assert left(tmp_path) == [f"p.{end}"]
    assert (tmp_path / f"p.{end}").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() != 0, reason="makes files of another user")
def test_another_users_pipes_are_not_taken(url, tmp_path):
    for end in "in", "out":
        os.mkfifo(tmp_path / f"p.{end}")
        os.chown(tmp_path / f"p.{end}", 12345, -1)
        with pytest.raises(NotPermittedError, match="another user"):
            Host(url)
        with (
            open(os.open(tmp_path / f"p.{end}", os.O_RDWR)),  # the other user's host
            pytest.raises(NotPermittedError, match="belongs to user 12345, expected 0"),
        ):
            connect(url)
        os.chown(tmp_path / f"p.{end}", 0, -1)


def test_pipes_that_cannot_be_removed_do_not_keep_the_bridge(url, monkeypatch, tmp_path):
    unlink = Path.unlink

    def refuse(path, **options):
        if path.parent == tmp_path:
            raise PermissionError(f"{path} stays")
        unlink(path, **options)

    host = Host(url)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        with pytest.raises(PermissionError, match="p.in stays"):
            host.close()
    assert not list(Path("/dev/shm").glob(f"shmb.{host.name}"))
    with Host(url):  # the pipes were let go
        pass
    assert left(tmp_path) == []


def test_a_closed_host_is_called_by_its_url(url):
    host = Host(url)
    host.close()
    with pytest.raises(ClosedError, match=re.escape(url)):
        host.receive(0)


def test_a_host_that_comes_too_late_leaves_the_others_pipes(url, monkeypatch, tmp_path):
    make, first = hosts._make, []

    def make_and_wait(path):
        made = make(path)
        if not first:
            first.append(None)
            first[0] = Host(url)  # has the pipe that was just made
        return made

    monkeypatch.setattr(hosts, "_make", make_and_wait)
    with pytest.raises(InUseError, match="a live host"):
        Host(url)
    assert left(tmp_path) == ["p.in", "p.out"]
    first[0].close()
    assert left(tmp_path) == []


def test_hosts_that_come_and_go_find_the_pipes_in_use_or_have_them(url, in_thread):
    def come_and_go():
        for _ in range(30):
            with contextlib.suppress(InUseError), Host(url):
                pass

    for made in [in_thread(come_and_go) for _ in range(3)]:
        made.result()


def test_files_of_someone_else_are_not_removed(url, tmp_path):
    """Whatever took the names meanwhile."""
    with Host(url):
        (tmp_path / "p.in").unlink()
        (tmp_path / "p.in").write_text("mine")
    assert left(tmp_path) == ["p.in"]


@pytest.mark.parametrize("option", [{"channels": 2}, {"wait": "spin"}, {"slots": 3}])
def test_options_that_pipes_do_not_have_are_invalid(url, tmp_path, option):
    with pytest.raises(InvalidError):
        Host(url, **option)
    assert left(tmp_path) == []


def test_a_directory_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(shmbridge.SystemCallError, match=r"none/p\.in"):
        Host(f"pipe://{tmp_path}/none/p")


# ---- Talk ----


def test_batches_end_when_all_who_talk_have_asked(url, in_thread):
    with Host(url) as host:
        asking = in_thread(lambda: connect(url, deadline=20).evaluate({"x": [1, 2]}))
        batch = next(iter(host.batches(max_size=8, max_wait=60)))
        assert batch["x"].shape == (1, 2)
        batch.reply([3])
        assert asking.result() == 3


def test_runners_are_compilers_that_talk(url):
    with Host(url) as host:
        assert host.runners == 0
        runner = connect(url)
        assert host.receive(0.15) is None and host.runners == 1
        runner.close()
        assert host.receive(0.15) is None and host.runners == 0
    with Host(url, until_idle=0.01) as host:
        assert list(host) == []


def test_a_reply_from_another_thread_goes_out_at_once(url, in_thread):
    with Host(url) as host, connect(url, deadline=20) as runner:
        for i in range(5):
            asking = in_thread(lambda i=i: runner.evaluate({"x": i}))
            request = host.receive(20)
            in_thread(request.reply, i + 1).result()
            assert asking.result() == i + 1


# ---- Ends ----


def test_closing_from_another_thread_ends_every_wait(url, in_thread):
    with Host(url) as host, connect(url) as runner:
        waiting = in_thread(host.receive)
        host.receive(0)
        host.close()
        with pytest.raises(ClosedError):
            waiting.result()
        with pytest.raises(HostGoneError):
            runner.evaluate({"x": 1})


def test_a_forked_child_has_no_part_in_it(url, tmp_path, in_thread):
    with Host(url) as host, connect(url, deadline=20) as runner:
        asking = in_thread(lambda: runner.evaluate({"x": 1}))
        request = host.receive(20)
        kept = request["x"]
        request.reply(5)
        assert asking.result() == 5
        pid = os.fork()
        if not pid:
            ok = False
            try:
                assert kept == 1
                for call in (lambda: host.receive(0), lambda: runner.evaluate({"x": 1})):
                    with pytest.raises(ForkedError):
                        call()
                host.close()
                ok = True
            finally:
                os._exit(not ok)
        assert os.waitpid(pid, 0)[1] == 0
        assert left(tmp_path) == ["p.in", "p.out"]
        asking = in_thread(lambda: runner.evaluate({"x": 2}))
        host.receive(20).reply(6)
        assert asking.result() == 6


def test_the_command_line_tells_the_flags_for_llvms_pipes(tmp_path):
    (tmp_path / "models.py").write_text(MODELS)
    words = ["--python", "models:total", "--until-idle", "0"]
    done = run("serve", f"llvm://{tmp_path}/p?decisions=evict", *words, cwd=tmp_path)
    assert f" -mllvm -regalloc-evict-interactive-channel-base={tmp_path}/p.evict\n" in done.stdout
    assert "shmb_open" not in done.stdout and done.returncode == 0


def test_the_command_line_serves_pipes(url, tmp_path, command):
    serve = command("connect(", "serve", url, "--python", "models:total")
    # How to connect, for a shell too.
    assert url in serve.said and f"SHMBRIDGE_URL={shlex.quote(url)}" in serve.said
    with connect(url, deadline=20) as runner:
        assert runner.evaluate({"x": 41}) == 41
    assert "1 requests, 0 errors" in serve.end(signal.SIGINT)
    assert not list(tmp_path.glob("p.*"))


# ---- LLVM's channel, as an environment writes it that is not LLVM ----

UNKNOWN_LINES = r"""
    import sys
    from shmbridge import Host
    path = sys.argv[1]
    header = (b'{"features":[{"name":"x","port":0,"shape":[1],"type":"int64_t"}],'
              b'"advice":{"name":"advice","port":0,"shape":[1],"type":"int64_t"}}\n')
    observation = b'{"context":"f"}\n{"observation":0}\n%b\n'
    with Host(f"llvm://{path}") as host, host.start(lambda request: int(request["x"][0]) + 1):
        with (open(f"{path}.in", "rb", buffering=0) as replies,
              open(f"{path}.out", "wb", buffering=0) as out):
            for unknown, x in (header + b"what is this?\n", 4), (b'{"gossip":1}\n\x00\xff\n', 6):
                out.write(unknown + observation % x.to_bytes(8, "little"))
                print(int.from_bytes(replies.read(8), "little"))
"""


def test_unknown_lines_on_llvms_channel_are_left_out_and_said(python, tmp_path):
    """In a process of its own, since it is said once in one."""
    program = python(UNKNOWN_LINES, tmp_path / "b", stderr=subprocess.PIPE)
    answers, said = program.communicate(timeout=60)
    assert answers == "5\n7\n" and said.count("\n") == 1, said
    assert "LLVM's channel" in said and "continuing with the next line" in said


def test_a_header_that_cannot_be_answered_is_said(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr("shmbridge.hosts.llvm.LINGER", 0)
    with (
        Host(f"llvm://{tmp_path}/b") as host,
        open(tmp_path / "b.in", "rb", buffering=0),
        open(tmp_path / "b.out", "wb", buffering=0) as out,
    ):
        out.write(b'{"features":[]}\n')
        said = []
        until(
            lambda: host.receive(timeout=0.01) or said.append(capfd.readouterr().err) or any(said)
        )
    expected = "the compiler's header names no advice: this compiler waits for answers"
    assert f"shmbridge: {tmp_path}/b: {expected}" in "".join(said)


def test_a_compiler_that_stays_is_seen_out_for_so_long_at_most(tmp_path, monkeypatch):
    """The thread that does it would keep the program from ending."""
    monkeypatch.setattr("shmbridge.hosts.llvm.LINGER", 0.1)
    before = set(threading.enumerate())
    with (
        Host(f"llvm://{tmp_path}/b") as host,
        open(tmp_path / "b.in", "rb", buffering=0),
        open(tmp_path / "b.out", "wb", buffering=0) as out,
    ):
        out.write(b"{}\n")
        until(lambda: host.receive(timeout=0.01) is None and host.runners == 1)
        host.close()
        until(lambda: set(threading.enumerate()) <= before)
