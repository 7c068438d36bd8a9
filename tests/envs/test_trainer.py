"""The trainer: episodes of compilers, as Gymnasium has them, and deaths on both sides."""

import contextlib
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces
from support.environments import Corridor, Masked, Patient, Plain, Spoken, Tag

from shmbridge import (
    ClosedError,
    DeadlineError,
    InvalidError,
    MismatchError,
    ModelError,
    TooLargeError,
    _config,
    connect,
)
from shmbridge._episodes import stepping
from shmbridge.envs import CompilerEnv
from shmbridge.rl import Agent, drive

BOUND = 20  # seconds, of every wait


def test_gymnasiums_methods(name, walk):
    env = CompilerEnv(name, actions=2, timeout=BOUND)
    compiler = walk(Corridor(), episodes=2)
    observation, info = env.reset()
    assert observation["cell"].tolist() == [1, 0, 0, 0, 0]
    assert info == {"function": "main", "step": 0}
    turns = [env.step(action) for action in (1, np.int64(0), 1, np.array(1), 1, 1)]
    assert [turn[0]["cell"].argmax() for turn in turns] == [1, 0, 1, 2, 3, 4]
    assert [round(turn[1], 2) for turn in turns] == [-0.01] * 5 + [0.99]
    assert [turn[2:4] for turn in turns] == [(False, False)] * 5 + [(True, False)]
    assert turns[-1][4]["step"] == 6
    with pytest.raises(InvalidError, match="reset"):
        env.step(1)
    env.reset()
    for _ in range(49):
        assert env.step(0)[2:4] == (False, False)
    assert env.step(0)[2:4] == (False, True)
    env.close()
    assert compiler.result() == [[1, 0, 1, 1, 1, 1], [0] * 50]


def test_a_reset_gives_the_episode_up(name, walk):
    with contextlib.closing(CompilerEnv(name, timeout=BOUND)) as env:
        compiler = walk(Corridor(), episodes=3)
        env.reset()
        env.step(1)
        _, info = env.reset()
        assert info["step"] == 0
        env.send(0)
        env.reset()
        for _ in range(4):
            turn = env.step(1)
        assert turn[2]
        first, second, third = compiler.result()
    assert isinstance(first, ModelError) and isinstance(second, ModelError) and third == [1] * 4
    assert "abandoned this episode" in str(first)


def test_a_trainer_behind_pipes(tmp_path, in_thread):
    """Any SerDes will do that keeps the name "learner"."""
    url = f"pipe://{tmp_path}/passes?serdes=flatbuffers"

    def compiler():
        with connect(url, connect_timeout=BOUND) as runner:
            drive(corridor := Corridor(), Agent(runner))
            return corridor.actions

    with contextlib.closing(CompilerEnv(url, timeout=BOUND)) as env:
        walker = in_thread(compiler)
        env.reset()
        turns = [env.step(1) for _ in range(4)]
        assert round(turns[-1][1], 2) == 0.99 and turns[-1][2] and walker.result() == [1] * 4


def test_what_is_no_action_ends_the_episode(name, walk):
    with contextlib.closing(CompilerEnv(name, timeout=BOUND)) as env:
        compiler = walk(Corridor(), episodes=2)
        env.reset()
        assert env.step(0.5)[2:4] == (False, True)  # the compiler could not choose, and ended it
        env.reset()
        with pytest.raises(InvalidError, match="found object"):
            env.step(object())
        for _ in range(4):
            turn = env.step(1)  # it still waits
        assert turn[2]
        first, second = compiler.result()
        assert isinstance(first, MismatchError) and "a single float" in str(first)
        assert second == [1] * 4


@pytest.mark.parametrize("action", [1.0, np.float32(1), float("nan"), "x", 2, -1, None, [1]])
def test_what_is_none_of_the_actions_is_refused_and_the_compiler_still_waits(name, walk, action):
    with contextlib.closing(CompilerEnv(name, actions=2, timeout=BOUND)) as env:
        compiler = walk(Corridor())
        env.reset()
        with pytest.raises(InvalidError, match="expected an integer from 0 to 1"):
            env.step(action)
        while not env.step(1)[2]:
            pass
        assert compiler.result() == [[1] * 4]


def test_what_lies_outside_the_action_space_is_refused(name, walk):
    with contextlib.closing(
        CompilerEnv(name, actions=spaces.Box(-1, 1, (2,), np.float32), timeout=BOUND)
    ) as env:
        walk(Corridor())
        env.reset()
        with pytest.raises(InvalidError, match="expected one of Box"):
            env.step(np.full(2, 7, np.float32))


def test_the_first_observation_is_the_space_and_another_ends_the_episode(name, in_thread):
    def compiler():
        with connect(name, connect_timeout=BOUND) as runner:
            runner.evaluate({"x": np.zeros(3)})
            with pytest.raises(MismatchError, match="expected observations of x: .*3.* found x: "):
                runner.evaluate({"x": np.zeros(5)})

    with contextlib.closing(CompilerEnv(name, timeout=BOUND)) as env:
        asking = in_thread(compiler)
        first = env.observation_space
        env.reset()
        *_, truncated, info = env.step(0)
        assert truncated and "expected observations of x" in info["error"]
        assert env.observation_space is first and first["x"].shape == (3,)
        asking.result()


def test_a_compiler_that_asks_for_advice_alone_has_one_episode_until_it_leaves(name, in_thread):
    def compiler():
        with connect(name, connect_timeout=BOUND) as runner:
            return [int(runner.evaluate({"x": np.float32(i)})) for i in range(3)]

    with contextlib.closing(CompilerEnv(name, actions=9, timeout=BOUND)) as env:
        asking = in_thread(compiler)
        env.reset()
        turns = [env.step(action) for action in (4, 5, 6)]
        assert [turn[1:4] for turn in turns] == [(0, False, False)] * 2 + [(0, True, False)]
        assert turns[1][0]["x"] == 2 and turns[2][4] == {} and asking.result() == [4, 5, 6]


def test_a_reset_without_a_timeout_ends_where_no_compiler_is_connected(name, monkeypatch):
    monkeypatch.setattr(stepping, "NOBODY", 0.3)
    with (
        contextlib.closing(CompilerEnv(name)) as env,
        pytest.raises(DeadlineError, match="no compiler has been connected"),
    ):
        env.reset()


def test_an_action_that_is_too_large_ends_the_episode(name, walk):
    with contextlib.closing(CompilerEnv(name, timeout=BOUND)) as env:
        compiler = walk(Corridor(), episodes=2)
        env.reset()
        env.step(1)
        *_, truncated, info = env.step(np.zeros(1 << 16))
        assert truncated and "524288" in info["error"]
        env.reset()
        env.close()
        assert [type(error) for error in compiler.result()] == [TooLargeError, ClosedError]


def test_an_exception_in_the_compiler_reaches_the_trainer_with_its_text(name, walk):
    class Broken(Corridor):
        def step(self, action):
            raise IndexError("no loop 7 in main")

    with contextlib.closing(CompilerEnv(name, timeout=BOUND)) as env:
        compiler = walk(Broken())
        env.reset()
        *_, terminated, truncated, info = env.step(1)
        assert truncated and not terminated
        assert "step failed: IndexError: no loop 7 in main" in info["error"]
        assert isinstance(compiler.result()[0], IndexError)


class Blame(Tag):
    """Who acts pays the agent that acted before."""

    def step(self, action):
        before = self.log[-1][0] if self.log else None
        observation = super().step(action)
        if before:
            self.add_reward(-0.25, before)
        return observation


def test_agents_are_told_of_and_each_ones_reward_is_its_own(name, walk):
    with contextlib.closing(CompilerEnv(name, timeout=BOUND)) as env:
        compiler = walk(Blame(), agents=("red", "green", "blue"))
        turns, rewards = [env.reset()[1]["agent"]], []
        for i in range(5):
            _, reward, done, _, info = env.step(i)
            assert reward == sum(info["rewards"].values())
            turns.append(info["agent"])
            rewards.append(info["rewards"])
        assert done and turns[:5] == list(Tag.order)
        assert rewards == [
            {"red": 1, "green": 0, "blue": 0},
            {"red": -0.25, "green": 1, "blue": 0},
            {"red": 1, "green": -0.25, "blue": 0},
            {"red": -0.25, "green": 0, "blue": 1},
            {"red": 0, "green": 1, "blue": -0.25},
        ]
        assert compiler.result() == [list(zip(Tag.order, range(5), strict=True))]


def test_texts_lists_and_masks_are_infos(name, walk):
    with contextlib.closing(CompilerEnv(name, timeout=BOUND)) as env:
        walk(Spoken(), agents=Spoken.agents)
        assert env.reset()[1] == {"words": ["a", "bc"], "who": "", "agent": "red", "step": 0}
        *_, info = env.step(0)
        assert (info["words"], info["who"], info["agent"]) == (["bc"], "né", "green")
        while not env.step(0)[2]:
            pass
        masked = CompilerEnv(env.compilers, timeout=BOUND)
        walk(Masked())
        assert masked.reset()[1]["action_mask"].tolist() == [False, True]
        masked.step(1)
        assert masked.action_masks().tolist() == [True, True]


def test_actions_are_numbers_arrays_or_several_fields(name, in_thread):
    class Tile(Plain):
        def step(self, action):
            self.actions.append(action.advice)
            return super().step(action)

    def compiler():
        with connect(name, connect_timeout=BOUND) as runner:
            drive(tile := Tile(), Agent(runner, choice="raw"), 3)
            return tile.actions[::2]

    with contextlib.closing(CompilerEnv(name, timeout=BOUND)) as env:
        tiling = in_thread(compiler)
        env.reset()
        for action in (np.array([0.5, 1.5]), {"tile": 4, "unroll": 2}, 7):
            env.step(action)  # as a row of a CompilerVectorEnv
        first, second, third = tiling.result()
        assert first.tolist() == [0.5, 1.5] and third == 7
        assert (second["tile"], second["unroll"]) == (4, 2)


def test_closing_the_trainer_leaves_the_compiler_its_heuristic(name, walk):
    env = CompilerEnv(name, timeout=BOUND)
    compiler = walk(patient := Patient())
    env.reset()
    env.step(0)
    env.close()
    assert compiler.result() == [[0, 1, 1, 1, 1]] and isinstance(
        patient.errors[0], (ClosedError, ModelError)
    )


def test_silence_is_bounded(name, walk, in_thread):
    nobody = pytest.raises(DeadlineError, match="no compiler began .* for 1 of 1: start another")
    with contextlib.closing(CompilerEnv(name, timeout=0.05)) as env, nobody:
        env.reset()
    go = threading.Event()

    class Slow(Corridor):
        def step(self, action):
            go.wait(BOUND)
            return super().step(action)

    with contextlib.closing(CompilerEnv(name, timeout=BOUND)) as env:
        compiler = walk(Slow())
        env.reset()
        env._stepping.slice, env._stepping.timeout = 1e6, 0.05
        assert env.step(1)[3:] == (True, {"error": "the compiler asked nothing for 0.05 s"})
        go.set()
        env._stepping.timeout = 0.5
        with pytest.raises(DeadlineError):
            env.reset()
        assert isinstance(compiler.result()[0], ModelError)


def test_a_trainer_refuses_an_episode_that_began_without_it(name, in_thread):
    def in_mid_episode():
        with connect(name, connect_timeout=BOUND) as runner:
            runner.evaluate({"step": 3})

    with contextlib.closing(CompilerEnv(name, timeout=1)) as env:
        compiler = in_thread(in_mid_episode)
        with pytest.raises(DeadlineError):
            env.reset()
        with pytest.raises(ModelError, match="has no such episode"):
            compiler.result()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_gymnasiums_check_passes_with_the_compiler_of_the_documentation(name, python):
    from gymnasium.utils.env_checker import check_env

    page = Path(__file__).parents[2] / "docs" / "environments.md"
    compiler = re.search(r"```python file=compiler.py\n(.*?)```", page.read_text(), re.DOTALL)
    with contextlib.closing(CompilerEnv(name, actions=2, timeout=BOUND)) as env:
        running = python(compiler[1], f"shm://{name}", 1000, stderr=subprocess.DEVNULL)
        check_env(env)
        assert running.poll() is None


def test_a_reset_before_the_first_action_begins_the_same_episode(name, walk):
    with contextlib.closing(CompilerEnv(name, timeout=BOUND)) as env:
        compiler = walk(Corridor())
        first, again = env.reset(), env.reset()
        assert first[1] == again[1] == {"function": "main", "step": 0}
        assert (first[0]["cell"] == again[0]["cell"]).all()
        for _ in range(4):
            turn = env.step(1)
        assert turn[2] and compiler.result() == [[1] * 4]


@pytest.mark.parametrize("words, why", [(["abc"], "'abc'"), (["5"], "onnx")])
def test_the_example_trainer_says_what_is_wrong_before_it_trains(words, why, tmp_path, new_name):
    onnx = "" if words == ["abc"] else "raise ImportError('no onnx here')"
    (tmp_path / "onnx.py").write_text(onnx)
    trainer = _config.examples() / "python" / "trainer.py"
    words = [f"shm://{new_name()}", str(tmp_path / "policy.onnx"), *words]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-P", str(trainer), *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and why in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
