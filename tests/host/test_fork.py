"""What a child of a host's or a runner's process can do, and that its end harms nobody."""

import atexit
import faulthandler
import os
import signal
import sys
import textwrap

import numpy as np
import pytest
from support.processes import printed, until
from support.requests import attached

from shmbridge import ForkedError, Host, connect
from shmbridge._bridge import overview

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")


@pytest.fixture
def bridge(name, in_thread):
    """(host, runner, request, asking): a request under way that nobody has answered."""
    with Host(name, slots=4) as host:
        runner = attached(in_thread, host)
        asking = in_thread(runner.evaluate, {"x": np.arange(1000)})
        yield host, runner, host.receive(timeout=30), asking
        runner.close()


def in_child(function):
    """Forks; the exit status of the child, 0 when function() returned True."""
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        status = 1
        faulthandler.disable()
        try:
            status = 0 if function() is True else 2
        except BaseException as error:
            sys.stderr.write(f"in the child: {error!r}\n")
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def goes_on(host, runner, request, asking, shm_files):
    """The bridge is as if nothing had happened."""
    assert shm_files()
    request.reply(5)
    assert asking.result() == 5
    with host.start(lambda request: request["x"][:2]), connect(host.url) as another:
        assert runner.evaluate({"x": np.arange(7, 10)}).tolist() == [7, 8]
        assert another.evaluate({"x": np.arange(3)}).tolist() == [0, 1]
    host.close()
    return True


def test_a_child_reads_kept_arrays_and_cannot_write_them(bridge, shm_files):
    kept = bridge[2]["x"]
    assert in_child(lambda: kept.tolist() == list(range(1000))) == 0

    def write():
        kept[0] = 1
        return True

    assert in_child(write) == -signal.SIGSEGV
    assert kept[0] == 0 and goes_on(*bridge, shm_files)


def test_every_call_on_an_inherited_handle_says_what_to_do(bridge, shm_files):
    host, runner, request, asking = bridge

    def calls():
        for call in [
            lambda: host.receive(timeout=0),
            lambda: next(iter(host)),
            lambda: next(host.batches()),
            lambda: host.serve(lambda r: 1),
            lambda: request.reply(1),
            lambda: request.reply([1, 2]),
            lambda: request.fail("no"),
        ]:
            request._open = True
            with pytest.raises(ForkedError):
                call()
        return True

    assert in_child(calls) == 0
    request.reply(5)
    asking.result()
    asking.join()

    def asks():
        for _ in range(2):
            with pytest.raises(
                ForkedError, match="inherited through fork: open another in the child"
            ):
                runner.evaluate({"x": 1})
        runner.close()
        return True

    assert in_child(asks) == 0
    assert shm_files()


@pytest.mark.parametrize(
    "how",
    {
        "nothing": lambda _host, _runner: None,
        "close": lambda host, runner: (host.close(), runner.close()),
        "del": lambda host, _runner: host.__del__(),
        "with": lambda host, _runner: host.__exit__(None, None, None),
        "kill": lambda _host, _runner: os.kill(os.getpid(), signal.SIGKILL),
        "sys.exit": lambda _host, _runner: atexit._run_exitfuncs(),
    }.items(),
    ids=lambda how: how[0],
)
def test_however_a_child_ends_nothing_is_removed(bridge, shm_files, how):
    def child():
        how[1](*bridge[:2])
        return True

    assert in_child(child) in (0, -signal.SIGKILL)
    assert goes_on(*bridge, shm_files)


ENDS = """
    import multiprocessing, os, sys, threading, shmbridge
    def child(kept):
        assert kept.tolist() == [1, 2, 3]
    if __name__ == "__main__":
        host = shmbridge.Host(sys.argv[1], slots=4)
        runner = None
        def asks():
            global runner
            runner = shmbridge.connect(sys.argv[1])
            for i in range(2):
                assert runner.evaluate({"x": [1, 2, 3]}) == i
        thread = threading.Thread(target=asks)
        thread.start()
        request = host.receive()
        kept = request["x"]
        how = sys.argv[2]
        if how == "multiprocessing":
            process = multiprocessing.get_context("fork").Process(target=child, args=(kept,))
            process.start()
            process.join()
            assert process.exitcode == 0
        elif how == "a pool":
            with multiprocessing.get_context("fork").Pool(2) as pool:
                pool.map(print, [])
        else:
            pid = os.fork()
            if not pid:
                child(kept)
                if how == "shutdown":
                    sys.exit(0)
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        print(os.path.exists("/dev/shm/shmb." + sys.argv[1]), flush=True)
        request.reply(0)
        host.receive().reply(1)
        thread.join()
        runner.close()
        print("done", flush=True)
"""


@pytest.mark.parametrize("how", ["shutdown", "os._exit", "multiprocessing", "a pool"])
def test_a_childs_whole_interpreter_ends_and_nothing_is_removed(
    name, python, tmp_path, how, shm_files
):
    """And the parent, which never closes its host, leaves nothing when it ends."""
    script = tmp_path / "ends.py"
    script.write_text(textwrap.dedent(ENDS))
    done = printed([sys.executable, script, name, how])
    assert (done.returncode, done.stdout) == (0, "True\ndone\n"), done.stderr
    assert not shm_files()


def test_a_host_that_becomes_another_program_is_a_dead_one(name, python, shm_files):
    host = python(
        """
        import os, sys, shmbridge
        host = shmbridge.Host(sys.argv[1])
        print("made", flush=True)
        sys.stdin.readline()
        os.execv("/bin/sleep", ["sleep", "1000"])
        """,
        name,
    )
    assert host.line() == "made"
    assert shm_files()
    host.say()
    until(lambda: not any(info.alive for info in overview.bridges(name)))
    with Host(name) as successor:
        assert not successor._closed and host.poll() is None
    host.kill()
