"""What a trainer may do to environments whose compilers are its own: interrupt, close, reset and
fork at any moment."""

import os
import signal
import threading
from functools import partial

import numpy as np
import pytest
from support.compilations import marked
from support.processes import until, words_of

from shmbridge import Host
from shmbridge.errors import ClosedError, ForkedError, InvalidError, ShmbridgeError
from shmbridge.training import Corpus, Workers

pytest.importorskip("gymnasium")
from shmbridge.envs import CompilerEnv, CompilerVectorEnv

GOOD = "ask(3); open(output, 'w').write('1234')"
SLOW = "ask(1); time.sleep(1000)"


@pytest.fixture
def compilers_left(no_leftovers):
    """The processes of compilers that are there just now."""
    return lambda: [pid for pid in marked(no_leftovers) if "compiler-" in words_of(pid)]


@pytest.fixture
def vector(name, corpus, compilers_left):
    """vector(task, n, **options): an environment, closed at the end, and its workers."""
    made = []

    def make(task, n=2, **options):
        workers = Workers(task, options.pop("sampler", None) or corpus.sampler(1))
        made.append(CompilerVectorEnv(name, n, actions=10, workers=workers, **options))
        return made[-1], workers

    yield make
    for env in made:
        env.close()
    until(lambda: not compilers_left())  # one that Ctrl-C left ends a little later


def steps(env, count):
    """So many steps; how many episodes ended well in them."""
    return sum(int(env.step(np.zeros(env.num_envs, int))[2].sum()) for _ in range(count))


def test_ctrl_c_in_mid_step_leaves_the_environment_usable(vector, py):
    env, workers = vector(py(SLOW))
    env.reset()
    with pytest.raises(KeyboardInterrupt):
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        env.step(np.zeros(2, int))
    workers.task = py(GOOD)
    env.reset(seed=1)
    assert steps(env, 8) == 4


def test_ctrl_c_in_reset(vector, py):
    env, workers = vector(py("time.sleep(1000)"))
    with pytest.raises(KeyboardInterrupt):
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        env.reset()
    workers.task = py(GOOD)
    env.reset()
    assert steps(env, 8) == 4


def test_closing_twice_in_mid_episode_and_use_after_it(vector, py, compilers_left):
    env, workers = vector(py(GOOD))
    env.reset()
    steps(env, 1)
    env.close()
    assert compilers_left() == []
    env.close()
    env.close_extras()
    workers.close()
    with pytest.raises(ShmbridgeError):
        env.step(np.zeros(2, int))
    with pytest.raises(ClosedError):
        env.reset()
    assert compilers_left() == []


def test_reset_in_mid_episode(vector, py):
    env, workers = vector(py(GOOD))
    for i, seed in enumerate([None, 5, None, 5]):
        _, infos = env.reset(seed=seed)
        assert infos["_step"].all()
        if i % 2:
            env.send(np.zeros(2, int))
        else:
            steps(env, 1)
    env.reset()
    assert steps(env, 3) == 2
    assert workers.counts["ended"] == 8


def test_an_unknown_module_changes_nothing(vector, py):
    env, workers = vector(py(GOOD))
    with pytest.raises(InvalidError, match="expected a module of the corpus"):
        env.reset(options={"module": "nowhere"})
    with pytest.raises(InvalidError, match="reset"):
        steps(env, 1)
    env.reset()
    steps(env, 1)
    with pytest.raises(InvalidError, match="expected a module of the corpus"):
        env.reset(options={"module": "nowhere"})
    assert steps(env, 2) == 2
    assert workers.counts == {"ok": 2}


def test_more_environments_than_the_host_has_channels(vector, py):
    with pytest.raises(InvalidError, match="channels=3"):
        vector(py(GOOD), n=3, channels=2)


@pytest.mark.parametrize(
    "make",
    [
        partial(CompilerEnv, actions=-1),
        partial(CompilerVectorEnv, actions=-1, num_envs=2),
        partial(CompilerVectorEnv, actions=2, num_envs=0),
        partial(CompilerVectorEnv, actions=2, num_envs=2, channels=1),
        partial(CompilerEnv, actions=2, timeout="1"),
    ],
)
def test_a_constructor_that_fails_leaves_no_host(name, shm_files, make):
    with pytest.raises((ValueError, TypeError)) as kept:
        make(name)
    assert not shm_files() and kept  # what was raised holds the constructor's frame


def test_a_constructor_that_fails_leaves_the_hosts_of_others_open(name):
    with Host(name, channels=1) as host:
        with pytest.raises(InvalidError):
            CompilerVectorEnv(host, 2, actions=2)
        assert not host._closed


def test_compilers_that_ask_nothing_are_an_error_that_shows_them(vector, py):
    env, workers = vector(py("sys.exit('no such flag')"), n=1)
    with pytest.raises(
        InvalidError, match="(?s)asked nothing: 11; the last: exit status: try .*no such flag"
    ):
        env.reset()
    assert workers.counts["exit status"] > 10
    workers.task = py(GOOD)
    env.reset()
    assert steps(env, 3) == 1


def test_a_forked_child_touches_nothing_and_starts_no_compilers(vector, py):
    env, workers = vector(py(GOOD))
    env.reset()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            with pytest.raises(ShmbridgeError):
                env.step(np.zeros(2, int))
            workers._start = lambda module: os._exit(3)
            with pytest.raises(ForkedError):
                env.reset()
            workers.close()
            env.close()
            status = 0
        finally:
            os._exit(status)
    until(lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG))
    assert os.waitpid(pid, 0) == (pid, 0)
    assert steps(env, 3) == 2
    assert workers.counts == {"ok": 2}


def test_no_baseline_outlives_the_environment(vector, py, compilers_left, tmp_path):
    code = (
        "if not os.environ.get('SHMBRIDGE_URL'): open(f'{os.path.dirname(module)}/begun', 'w'); "
        "time.sleep(1000)"
    )
    env, workers = vector(py(f"{code}\n{GOOD}", scores={"size": os.path.getsize}))
    env.reset()
    env.send(np.zeros(2, int))
    for _ in range(2):
        env.receive()
        env.send(np.zeros(2, int))
    until((tmp_path / "begun").exists)
    env.close()
    assert compilers_left() == []


def test_the_next_episode_is_of_who_came_early_where_one_asked_nothing(name, py, tmp_path):
    for each in ("good", "mute"):
        (tmp_path / each).write_text(each)
    good, mute = Corpus.from_sources(tmp_path / "good", tmp_path / "mute")
    sampler = Corpus([good, mute]).sampler(1)
    order = iter([good, good, mute, good, good, good])
    sampler.__class__ = type("Scripted", (type(sampler),), {"__next__": lambda _: next(order)})
    workers = Workers(
        py(f"if module.endswith('mute'): time.sleep(1); sys.exit(3)\n{GOOD}"), sampler
    )
    with CompilerEnv(name, actions=10, workers=workers, timeout=10) as env:
        for _ in range(3):  # the third is mute for a second, in which the fourth asks
            env.reset()
        assert workers.counts["exit status"] == 1


def test_a_compiler_that_starts_ahead_of_a_closed_environment_is_ended(vector, py, compilers_left):
    env, workers = vector(py(GOOD))
    env.reset()
    env.reset()  # from now on the next ones start ahead
    until(lambda: len(compilers_left()) == 4)
    env.close()
    assert compilers_left() == []
