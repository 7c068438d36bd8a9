"""Environments whose compilers belong to the trainer: each episode is a compilation of a Task."""

import os
import shutil
from contextlib import closing
from functools import partial

import numpy as np
import pytest

from shmbridge import InvalidError
from shmbridge.training import Corpus, Task, Workers
from shmbridge.training.scores import text_size

pytest.importorskip("gymnasium")
from shmbridge.envs import CompilerEnv, CompilerVectorEnv

WRITES = "n = sum(ask(3)); open(output, 'w').write('x' * (100 - n))"


def plain_or_asked(code):
    """A compiler that asks where somebody may answer."""
    return f"if not os.environ.get('SHMBRIDGE_URL'): ask = lambda times: [0] * times\n{code}"


@pytest.fixture
def task(py):
    return py(plain_or_asked(WRITES), scores={"size": os.path.getsize})


def episode(env, action, **reset):
    """The rewards of an episode, and its last info."""
    env.reset(**reset)
    rewards, over = [], False
    while not over:
        _, reward, terminated, truncated, info = env.step(action)
        rewards.append(float(reward))
        over = terminated or truncated
    return rewards, info


def test_the_reward_of_a_compilation_comes_with_its_last_step(name, task, corpus):
    with CompilerEnv(name, actions=10, workers=Workers(task, corpus.sampler(0))) as env:
        rewards, info = episode(env, 5)
    assert rewards == [0, 0, pytest.approx(1 - 85.01 / 100.01)]
    assert info["scores"] == {"size": 85} and info["kind"] == "ok"


@pytest.mark.parametrize("own", [0, 0.25])
def test_a_drive_that_tells_no_reward_has_its_compilations(name, py, corpus, own):
    drives = f"""
    from shmbridge.rl import Agent, Environment, drive
    class Steps(Environment):
        def reset(self):
            self.left = 2
            return {{"x": self.left}}
        def step(self, action):
            self.left -= 1
            self.add_reward({own} * self.left)  # with the first action alone
            return {{"x": self.left}} if self.left else self.set_done()
    if os.environ.get("SHMBRIDGE_URL"):
        with connect() as runner: drive(Steps(), Agent(runner))
    open(output, "w").write("x" * (50 if os.environ.get("SHMBRIDGE_URL") else 100))
    """
    task = py(drives, scores={"size": os.path.getsize})
    with CompilerEnv(name, actions=2, workers=Workers(task, corpus.sampler(0))) as env:
        for _ in range(2):
            assert episode(env, 1)[0] == ([0.25, 0] if own else [0, pytest.approx(0.5, abs=1e-3)])


def test_a_reward_of_the_users_own_gets_the_outcome_and_the_baseline(name, task, corpus):
    def saved(outcome, baseline):
        return baseline["size"] - outcome.scores["size"]

    with CompilerEnv(
        name, actions=10, workers=Workers(task, corpus.sampler(0), reward=saved)
    ) as env:
        assert episode(env, 2)[0] == [0, 0, 6]


def test_a_reward_that_raises_is_raised_by_step(name, task, corpus):
    def broken(outcome, baseline):
        raise ZeroDivisionError("of mine")

    workers = Workers(task, corpus.sampler(0), reward=broken)
    with (
        CompilerEnv(name, actions=10, workers=workers) as env,
        pytest.raises(ZeroDivisionError, match="of mine"),
    ):
        episode(env, 2)


def programs(env, n, seed, episodes):
    """What each of n environments compiles, one episode after another."""
    found = [[] for _ in range(n)]
    env.reset(seed=seed)
    while min(map(len, found)) < episodes:
        _, _, terminated, _, infos = env.step(np.ones(n, int))
        for row in np.flatnonzero(terminated):
            found[row].append(infos["module"][row])
    return [each[:episodes] for each in found]


def test_one_seed_gives_the_same_programs_whatever_the_number_of_environments(
    new_name, task, tmp_path
):
    for i in range(9):
        (tmp_path / f"m{i}.txt").write_text(str(i))
    corpus = Corpus.from_sources(*sorted(tmp_path.glob("m*.txt")))
    found = {}
    for n in (1, 3):
        workers = Workers(task, corpus.sampler(0))
        with closing(CompilerVectorEnv(new_name(), n, actions=10, workers=workers)) as env:
            found[n] = programs(env, n, 7, 4)
    assert found[1] == found[3][:1]
    assert len({tuple(each) for each in found[3]}) == 3


def test_a_program_is_chosen_by_its_name(name, task, corpus):
    with CompilerEnv(name, actions=10, workers=Workers(task, corpus.sampler(0))) as env:
        for module in ("b.txt", "a.txt"):
            assert episode(env, 1, options={"module": module})[1]["module"] == module


def sb3(name, **options):
    pytest.importorskip("stable_baselines3", reason="its own package is tested against")
    from shmbridge.envs.sb3 import CompilerVecEnv

    return CompilerVecEnv(name, 2, **options)


def reset(env, options):
    if hasattr(env, "set_options"):  # of Stable-Baselines3
        env.set_options(options)
        return env.reset()
    return env.reset(options=options)


@pytest.mark.parametrize("make", [CompilerEnv, partial(CompilerVectorEnv, num_envs=2), sb3])
def test_an_unknown_option_of_reset_is_an_error_that_names_the_known_ones(name, task, corpus, make):
    with closing(make(name, actions=10, workers=Workers(task, corpus.sampler(0)))) as env:
        reset(env, {})
        with pytest.raises(InvalidError, match="'modul'.*\"module\""):
            reset(env, {"modul": "b.txt"})
        reset(env, {"module": "b.txt"})


@pytest.mark.parametrize("make", [CompilerEnv, partial(CompilerVectorEnv, num_envs=2)])
def test_an_option_that_only_workers_know_is_an_error_without_them(name, make):
    with (
        closing(make(name, actions=10, timeout=1)) as env,
        pytest.raises(InvalidError, match="'module'.*workers="),
    ):
        env.reset(options={"module": "b.txt"})


@pytest.mark.skipif(not shutil.which("clang-22"), reason="no clang-22")
def test_an_unmodified_clang_is_an_environment_with_a_reward(name, tmp_path):
    source = tmp_path / "m.c"
    source.write_text(
        "static int f(int x) { return x * 3; }\nint g(int x) { return f(x) + f(x + 1); }\n"
    )
    task = Task("clang-22 -Os -c {module} -o {output}", llvm="inline", scores={"text": text_size})
    workers = Workers(task, Corpus.from_sources(source).sampler(0))
    with CompilerEnv(name, actions=2, workers=workers) as env:
        never, info = episode(env, 0)
        always, _ = episode(env, 1)
    assert info["module"] == "m.c" and set(info["scores"]) == {"text"}
    assert never[-1] < always[-1] and set(never[:-1]) <= {0.0}
