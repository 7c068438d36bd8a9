"""SIGTERM leaves nothing in /dev/shm, ends the process as it would without us, and stays the
user's."""

import signal

import pytest

HOSTS = """
    import signal, sys, time, shmbridge
    {before}
    with shmbridge.Host(sys.argv[1], channels=1) as host:
        {after}
        print("made", flush=True)
        {wait}
"""


@pytest.mark.parametrize(
    "wait", ["host.serve(lambda request: 0)", "while True: time.sleep(0.05)", "host.receive()"]
)
def test_sigterm_removes_the_bridge_and_is_what_the_process_dies_of(name, python, shm_files, wait):
    host = python(HOSTS.format(before="", after="", wait=wait), name)
    assert host.line() == "made"
    host.terminate()
    assert host.wait(20) == -signal.SIGTERM and not shm_files()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_handler_of_the_users_own_stays(name, python, shm_files, when):
    own = {"before": "", "after": "", when: "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))"}
    host = python(HOSTS.format(**own, wait="host.serve(lambda request: 0)"), name)
    assert host.line() == "made"
    host.terminate()
    assert host.wait(20) == 7 and not shm_files()


def test_a_forked_child_that_is_terminated_leaves_the_parents_bridge(name, python, shm_files):
    wait = """
        import os
        if (child := os.fork()) == 0:
            while True:
                time.sleep(0.05)
        os.kill(child, signal.SIGTERM)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]),
            os.path.exists("/dev/shm/shmb." + sys.argv[1]))
"""
    host = python(HOSTS.format(before="", after="", wait=wait.strip()), name)
    assert host.line() == "made"
    assert host.line() == "-15 True"
    assert host.wait(20) == 0 and not shm_files()


LAST_CLOSE = """
    import signal, sys, threading
    from shmbridge import Host
    now = lambda: signal.getsignal(signal.SIGTERM)
    with Host(sys.argv[1]), Host(sys.argv[2]):
        assert now() is not signal.SIG_DFL
    assert now() is signal.SIG_DFL
    thread = threading.Thread(target=lambda: Host(sys.argv[1]).close())
    thread.start()
    thread.join()
    assert now() is signal.SIG_DFL
    print("restored")
"""


def test_the_last_host_that_closes_restores_the_default(name, new_name, python):
    # A process of its own: hosts of other tests may wait for the collector.
    host = python(LAST_CLOSE, name, new_name())
    assert host.line() == "restored"
    assert host.wait(20) == 0
