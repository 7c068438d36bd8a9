"""CompilerVectorEnv: several compilers at once, and all three ways of beginning the next
episode."""

import contextlib
import subprocess
import threading
import time

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from support.environments import Corridor, Masked, Plain, Spoken

from shmbridge import ClosedError, DeadlineError, InvalidError, MismatchError, _config, connect
from shmbridge._episodes.episode import LEFT, NEXT
from shmbridge.envs import CompilerEnv, CompilerPool, CompilerVectorEnv
from shmbridge.rl import Agent, drive

BOUND = 20  # seconds, of every wait


def run(env, steps):
    """All that the environment returns, by name, for actions that go right but for every third
    one."""
    turns = [env.step(np.full(env.num_envs, int(i % 3 > 0))) for i in range(steps)]
    names = ("observations", "rewards", "terminations", "truncations", "infos")
    return dict(zip(names, zip(*turns, strict=True), strict=True))


@pytest.mark.parametrize("kind", [Plain, Corridor, Masked, Spoken])
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_it_gives_what_gymnasiums_own_vector_gives(new_name, in_thread, mode, kind, n):
    names = [new_name(), new_name()]

    def compiler(name):
        with connect(name, connect_timeout=BOUND) as runner, contextlib.suppress(ClosedError):
            while True:
                agents = [Agent(runner, agent) for agent in getattr(kind, "agents", [""])]
                drive(kind(), agents, 7)

    threads = [in_thread(compiler, name) for name in names for _ in range(n)]
    with CompilerPool(names[0]) as one, CompilerPool(names[1]) as other:
        ours = CompilerVectorEnv(one, n, actions=2, timeout=BOUND, autoreset_mode=mode)
        make = [lambda: CompilerEnv(other, actions=2, timeout=BOUND)] * n
        theirs = SyncVectorEnv(make, autoreset_mode=mode)
        assert ours.observation_space == theirs.observation_space
        assert ours.single_action_space == theirs.single_action_space
        assert ours.metadata["autoreset_mode"] == theirs.metadata["autoreset_mode"]
        for mine, other in zip(ours.reset(), theirs.reset(), strict=True):
            assert normal(mine) == normal(other)
        found, expected = run(ours, 30), run(theirs, 30)
        for name, values in expected.items():
            for step, (a, b) in enumerate(zip(found[name], values, strict=True)):
                assert normal(a) == normal(b), (name, step)
    for thread in threads:
        with contextlib.suppress(ClosedError):
            thread.result()


def normal(value):
    """Something to compare: values that a mask leaves out are nothing."""
    if isinstance(value, dict):
        masks = {name[1:]: mask for name, mask in value.items() if name[0] == "_"}
        plain = {name: normal(each) for name, each in value.items() if name[0] != "_"}
        return {
            name: [each for each, told in zip(values, masks[name], strict=True) if told]
            if name in masks and isinstance(values, list)
            else values
            for name, values in plain.items()
        } | {f"_{name}": mask.tolist() for name, mask in masks.items()}
    if isinstance(value, np.ndarray):
        return [normal(each) for each in value] if value.dtype == object else value.tolist()
    return value


@pytest.mark.parametrize("kind", [Plain, Corridor], ids=["plain", "with texts"])
def test_disabled_waits_for_a_reset_of_those_that_are_over(name, walk, kind):
    with contextlib.closing(
        CompilerVectorEnv(name, 2, actions=2, timeout=BOUND, autoreset_mode="Disabled")
    ) as env:
        walks = [walk(kind(), episodes=9) for _ in range(2)]
        env.reset()
        for _ in range(3):
            env.step(np.array([1, 0]))
        *_, terminations, truncations, _ = env.step(np.array([1, 0]))
        assert terminations.tolist() == [True, False] and not truncations.any()
        with pytest.raises(InvalidError, match="reset_mask"):
            env.step(np.array([1, 1]))
        observations, infos = env.reset(options={"reset_mask": terminations})
        assert observations["cell"].argmax(axis=1).tolist() == [0, 0]
        assert infos["_step"].tolist() == [True, False]
        assert env.step(np.array([1, 1]))[4]["step"].tolist() == [1, 5]
        env.close()
        for each in walks:
            each.result()


def test_what_is_none_of_the_actions_is_refused_and_all_compilers_still_wait(name, walk):
    with contextlib.closing(CompilerVectorEnv(name, 2, actions=2, timeout=BOUND)) as env:
        walks = [walk(Plain()) for _ in range(2)]
        env.reset()
        for wrong in ([0, 2], [-1, 0], [0.5, 0], [[0, 1]], [0], ["a", "b"]):
            with pytest.raises(InvalidError, match="expected"):
                env.step(np.array(wrong))
        with pytest.raises(TypeError, match="alone"):
            env.step(0)
        for _ in range(4):
            *_, terminations, _, _ = env.step([1, 1])  # no array: one is made
        assert terminations.all()
        env.close()
        assert [each.result() for each in walks] == [[[1] * 4]] * 2


def test_the_next_runner_of_a_channel_begins_its_own_episode(name, in_thread):
    def compilers():
        for x in range(2):
            with connect(name, connect_timeout=BOUND) as runner:
                runner.evaluate({"x": np.float32(x)})

    with contextlib.closing(CompilerVectorEnv(name, 1, timeout=BOUND)) as env:
        asking = in_thread(compilers)
        env.reset()
        assert env.step([0])[3].all()
        observations, *_, truncations, _ = env.step([0])
        assert observations["x"].tolist() == [1] and not truncations.any()
        env.step([0])
        asking.result()


def test_a_question_without_a_report_begins_another_episode(name, in_thread):
    def compiler():
        with connect(name, connect_timeout=BOUND) as runner:
            for report in ({}, {"reward": 1.0, "done": False, "truncated": False, "step": 1}, {}):
                runner.evaluate({"x": np.float32(len(report)), **report})

    with contextlib.closing(CompilerVectorEnv(name, 1, timeout=BOUND)) as env:
        asking = in_thread(compiler)
        env.reset()
        assert env.step([0])[1].tolist() == [1]
        *_, truncations, infos = env.step([0])
        assert truncations.all() and infos["error"][0] == NEXT
        assert env.step([0])[0]["x"].tolist() == [0]
        env.step([0])
        asking.result()


def test_compilers_killed_at_any_moment_end_their_own_episodes_alone(name, c_program, in_thread):
    program = c_program(_config.examples() / "c" / "environment.c")
    random, stop, seen = np.random.default_rng(1), threading.Event(), []

    def start():
        command = [program, f"shm://{name}?connect_timeout=20", "1000000"]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill_and_start():
        running = [start() for _ in range(3)]
        while not stop.wait(random.exponential(0.02)):
            which = random.integers(3)
            running[which].kill()
            running[which].wait()
            running[which] = start()
        for each in running:
            each.kill()
            each.wait()

    with contextlib.closing(CompilerVectorEnv(name, 3, actions=4, timeout=BOUND)) as env:
        killing = in_thread(kill_and_start)
        try:
            env.reset()
            until = time.monotonic() + 3
            while time.monotonic() < until:
                *_, truncations, infos = env.step(random.integers(0, 3, 3))
                told = infos.get("_error", np.zeros(3, bool))
                assert not np.any(told & ~truncations)
                seen += [
                    error for error, one in zip(infos.get("error", told), told, strict=True) if one
                ]
        finally:
            stop.set()
            killing.result()
    assert len(seen) > 10 and set(seen) <= {LEFT, NEXT}


def test_a_compiler_with_other_observations_is_refused(name, walk):
    class Other(Plain):
        length = 6

    with contextlib.closing(CompilerVectorEnv(name, 1, actions=2, timeout=BOUND)) as env:
        first = walk(Plain())
        env.reset()
        while not env.step([1])[2].any():
            pass
        first.result()
        other = walk(Other())
        with contextlib.suppress(DeadlineError):
            env._stepping.timeout = 0.5
            env.step([1])
        assert isinstance(other.result()[0], MismatchError)


def test_what_was_returned_does_not_change(name, walk):
    with contextlib.closing(CompilerVectorEnv(name, 1, actions=2, timeout=BOUND)) as env:
        walk(Plain(), episodes=9)
        env.reset()
        kept = [env.step([1]) for _ in range(4)]
        env.step([1])
        assert [turn[0]["cell"].argmax() for turn in kept] == [1, 2, 3, 4]
        assert [turn[2].item() for turn in kept] == [False, False, False, True]
        assert [turn[4]["step"].item() for turn in kept] == [1, 2, 3, 4]
        env.close()


def test_a_step_before_a_reset_is_refused(name):
    with (
        contextlib.closing(CompilerVectorEnv(name, 1, timeout=BOUND)) as env,
        pytest.raises(InvalidError, match="expected reset"),
    ):
        env.step([0])
