"""Agents that take turns, as PettingZoo has them, and PettingZoo's own tests of that."""

import contextlib

import numpy as np
import pytest
from support.environments import Tag
from support.workers import GymWorkers

pytest.importorskip("pettingzoo", reason="its own package is tested against")

from pettingzoo.test import api_test, seed_test

from shmbridge import ClosedError, InvalidError, ModelError, connect
from shmbridge.envs.pettingzoo import CompilerAECEnv
from shmbridge.rl import Agent, drive

BOUND = 20
AGENTS = ["red", "green", "blue"]


class Shuffled(Tag):
    """The seed chooses whose turn it is; the agent before pays for the one that acts."""

    def __init__(self, seed):
        order = np.random.default_rng(seed).permutation(AGENTS * 3)
        self.order = tuple(map(str, order))

    def observe(self):
        at = len(self.log)
        return {"turn": np.array([at, AGENTS.index(self.order[at])], np.int64)}

    def reset(self):
        super().reset()
        return self.observe()

    def step(self, action):
        before = self.log[-1][0] if self.log else None
        more = super().step(action)
        if before:
            self.add_reward(-0.25, before)
        return more and self.observe()


def compile(runner, seed, options):
    drive(Shuffled(seed), [Agent(runner, name) for name in AGENTS])


@pytest.fixture
def make(new_name):
    """make(**options): an environment whose compilers are threads."""
    with contextlib.ExitStack() as stack:

        def environment(**options):
            options = {"agents": AGENTS, "actions": 4, "timeout": BOUND, **options}
            options.setdefault("workers", GymWorkers(compile=compile))
            env = CompilerAECEnv(new_name(), **options)
            return stack.enter_context(contextlib.closing(env))

        yield environment


@pytest.fixture
def started(make, in_thread):
    """An environment whose compiler comes by itself, and has one episode after another."""
    env = make(workers=None)
    url = env._env.compilers.host.url

    def episodes():
        with contextlib.suppress(ClosedError), connect(url) as runner:
            while True:
                with contextlib.suppress(ModelError):  # the trainer has given it up
                    compile(runner, 1, None)

    in_thread(episodes)
    yield env
    env.close()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("workers", [True, False])
def test_pettingzoos_api_test_passes(workers, request, make):
    api_test(make() if workers else request.getfixturevalue("started"), num_cycles=60)


def test_an_option_that_is_not_known_is_left_out(started):
    with pytest.warns(UserWarning, match="leaves colour out"):
        started.reset(options={"colour": 1})


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_pettingzoos_seed_test_passes(make):
    seed_test(make, num_cycles=40)


def test_turns_and_rewards_are_the_compilers(make):
    env = make()
    env.reset(seed=5)
    order, rewards = [], []
    for agent in env.agent_iter():
        observation, _, terminated, truncated, _ = env.last()
        if not terminated:
            order.append(agent)
            assert observation["turn"].tolist() == [len(order) - 1, AGENTS.index(agent)]
        env.step(None if terminated or truncated else 1)
        if not terminated:
            rewards.append(dict(env.rewards))
    expected = Shuffled(5).order
    assert tuple(order) == expected and not env.agents
    for i, each in enumerate(rewards):
        told = dict.fromkeys(AGENTS, 0.0)
        told[expected[i]] += 1
        if i:
            told[expected[i - 1]] -= 0.25
        assert each == told


class Silent(Shuffled):
    """It leaves the rewards to what its compilation is worth."""

    def add_reward(self, reward, agent=None):
        pass


class Worth(GymWorkers):
    def reward(self, label):
        return 0.5


def test_agents_share_what_a_compilation_is_worth(make):
    def silent(runner, seed, options):
        drive(Silent(seed), [Agent(runner, name) for name in AGENTS])

    for compiles, last in ((silent, dict.fromkeys(AGENTS, 0.5)), (compile, None)):
        env = make(workers=Worth(compile=compiles))
        env.reset(seed=5)
        rewards = []
        for _ in env.agent_iter():
            over = env.last()[2]
            env.step(None if over else 1)
            if not over:
                rewards.append(dict(env.rewards))
        assert last is None or rewards == [dict.fromkeys(AGENTS, 0.0)] * 8 + [last]
        assert last is not None or 0.5 not in rewards[-1].values()
        env.close()


def test_an_agent_that_was_not_named_is_refused(make):
    with pytest.raises(InvalidError, match="expected one of red, green"):
        env = make(agents=["red", "green"])
        env.reset(seed=5)
        for _ in range(9):
            env.step(0)


def test_what_is_no_action_is_refused_and_the_compiler_still_waits(make):
    env = make()
    env.reset(seed=1)
    first = env.agent_selection
    with pytest.raises(InvalidError, match="expected one of Discrete"):
        env.step(9)
    assert env.agent_selection == first
    env.step(3)
    assert env.infos[env.agent_selection]["step"] == 1
