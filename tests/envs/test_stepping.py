"""What C copies and what it hands to Python: observations of any kind, and compilers that say what
makes no sense."""

import contextlib
import math
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from shmbridge import DeadlineError, ShmbridgeError, _fastpath, connect
from shmbridge._episodes.episode import LEFT
from shmbridge._episodes.pool import Channels
from shmbridge.envs import CompilerEnv, CompilerPool, CompilerVectorEnv
from shmbridge.rl import Agent, Environment, drive

BOUND = 20
DTYPES = st.sampled_from(["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"])
SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


@st.composite
def episodes(draw):
    """Observations of an episode: equal names, dtypes and shapes, and rewards between them."""
    names = draw(st.lists(st.text("abcxyz", min_size=1), min_size=1, max_size=4, unique=True))
    kinds = {name: (np.dtype(draw(DTYPES)), draw(SHAPES)) for name in names}
    steps = draw(st.integers(1, 4))
    observations = [
        {name: draw(arrays.arrays(dtype, shape)) for name, (dtype, shape) in kinds.items()}
        for _ in range(steps + 1)
    ]
    rewards = draw(st.lists(st.floats(allow_nan=False), min_size=steps, max_size=steps))
    return observations, rewards


class Recorded(Environment):
    def __init__(self, observations, rewards):
        self.observations, self.rewards = observations, rewards

    def reset(self):
        self.at = 0
        return self.observations[0]

    def step(self, action):
        self.add_reward(self.rewards[self.at])
        self.at += 1
        if self.at == len(self.rewards):
            self.set_done()
        return self.observations[self.at]


def test_usual_steps_and_episodes_are_stepped_by_c_alone(new_name, monkeypatch):
    handed = []
    came = Channels.dispatch
    monkeypatch.setattr(
        Channels, "dispatch", lambda self, *args: handed.append(args) or came(self, *args)
    )
    observations = [{"x": np.full(3, i, np.float32), "n": np.int64(i)} for i in range(51)]
    with CompilerPool(new_name()) as compilers, ThreadPoolExecutor(1) as threads:

        def compiler():
            with connect(compilers.host.url, connect_timeout=BOUND) as runner:
                for _ in range(4):
                    drive(Recorded(observations, [1.0] * 50), Agent(runner, "a"))

        asking = threads.submit(compiler)
        env = CompilerVectorEnv(compilers, 1, timeout=BOUND)
        env.reset()
        for _ in range(180):
            *_, infos = env.step(np.zeros(1, np.int64))
            assert infos["agent"].tolist() == ["a"]
        assert len(handed) < 10, "Python looked at more than beginnings and ends"
        compilers.close()
        with contextlib.suppress(ShmbridgeError):
            asking.result()


def test_c_refuses_arrays_and_rows_that_do_not_fit():
    arrays = [np.zeros(3, dtype) for dtype in ("f8", "?", "?", "i8", "i8")]
    for i, array in enumerate(arrays):
        for wrong in (array[:2], array.astype("f4")):
            with pytest.raises(ValueError, match="expected arrays of"):
                _fastpath.Steps(0, *arrays[:i], wrong, *arrays[i + 1 :], [])
    steps, x = _fastpath.Steps(0, *arrays, []), np.zeros((3, 2))
    for row in (-1, 3):
        for name, more in {
            **{"take": (0,), "move": (1,), "end": (0,), "row": (), "channels": ()}
        }.items():
            with pytest.raises(IndexError, match=f"expected a row below 3, found {row}"):
                getattr(steps, name)(row, *more)
    for call, match in (
        (lambda: steps.take(0, -1), "expected the key of a request"),
        (lambda: steps.move(0, _fastpath.OPEN), "expected BEGINS or SENT"),
        (lambda: steps.shape([]), "expected a dict"),
        (lambda: steps.shape({1: x}), "expected arrays of rows, by name"),
        (lambda: steps.shape({"x": [1, 2, 3]}), "expected arrays of rows, by name"),
        (lambda: steps.shape({"x": x, "y": x[:2]}), "expected arrays of 3 rows"),
    ):
        with pytest.raises((TypeError, ValueError), match=match):
            call()
    steps.shape({"x": x})
    held = [sys.getrefcount(array) for array in [x, *arrays]]
    steps = call = None
    assert [sys.getrefcount(array) for array in [x, *arrays]] == [n - 1 for n in held]


@settings(max_examples=40)
@given(episode=episodes())
def test_observations_and_rewards_arrive_as_they_were_sent(new_name, episode):
    observations, rewards = episode
    with CompilerPool(new_name()) as compilers, ThreadPoolExecutor(1) as threads:

        def compiler():
            with connect(compilers.host.url, connect_timeout=BOUND) as runner:
                drive(Recorded(observations, rewards), Agent(runner))

        asking = threads.submit(compiler)
        env = CompilerEnv(compilers, timeout=BOUND)
        found = [env.reset()[0]]
        got = []
        for _ in rewards:
            observation, reward, terminated, truncated, _ = env.step(np.array([1]))
            found.append(observation)
            got.append(reward)
        assert terminated and not truncated
        assert all(a == b or math.isclose(a, b) for a, b in zip(got, rewards, strict=True))
        for one, other in zip(found, observations, strict=True):
            assert one.keys() == other.keys()
            for name, value in other.items():
                assert np.array(one[name]).dtype == value.dtype
                assert np.array(one[name]).tobytes() == value.tobytes()
        asking.result()


GOOD = {"reward": 1.0, "done": False, "truncated": False, "step": 1}
WRONG = {
    "a reward that is text": GOOD | {"reward": "much"},
    "a reward that is many": GOOD | {"reward": np.ones(3)},
    "a reward that is no number": GOOD | {"reward": math.nan},
    "a step that is no whole number": GOOD | {"step": 0.5},
    "a step that is a list": GOOD | {"step": ["a"]},
    "an agent that is a number": {"agent": 1},
    "an agent that is a list": {"agent": ["a", "b"]},
}


@pytest.mark.parametrize("said", WRONG.values(), ids=WRONG)
def test_a_compiler_that_says_no_reward_loses_its_own_episode(name, in_thread, said):
    def compiler():
        with connect(name, connect_timeout=BOUND) as runner:
            runner.evaluate({"x": np.float32(1)})
            with pytest.raises(ShmbridgeError):
                runner.evaluate({"x": np.float32(2), **said})
            runner.evaluate({"x": np.float32(3)})

    with contextlib.closing(CompilerVectorEnv(name, 1, timeout=BOUND)) as env:
        asking = in_thread(compiler)
        env.reset()
        *_, terminations, truncations, infos = env.step([0])
        assert truncations.all() and not terminations.any() and infos["error"][0]
        assert env.step([0])[0]["x"].tolist() == [3]
        env.step([0])
        asking.result()


@pytest.mark.parametrize("agent", [1, ["a", "b"], 0.5])
def test_a_compiler_whose_agent_is_no_text_begins_no_episode(name, in_thread, agent):
    def compiler():
        with connect(name, connect_timeout=BOUND) as runner:
            with pytest.raises(ShmbridgeError, match='a text as "agent"; found x: float64'):
                runner.evaluate({"x": 1.0, "agent": agent})
            runner.evaluate({"x": 2.0, "agent": "a"})

    with contextlib.closing(CompilerEnv(name, timeout=BOUND)) as env:
        asking = in_thread(compiler)
        observation, info = env.reset()
        assert observation["x"] == 2 and info["agent"] == "a"
        env.step(0)
        asking.result()


def test_numbers_of_other_dtypes_are_read_too(name, in_thread):
    """They are not what `drive` says, so Python reads them."""

    def compiler():
        with connect(name, connect_timeout=BOUND) as runner:
            runner.evaluate({"x": np.float32(1)})
            told = {"done": np.uint8(0), "truncated": False, "step": np.int16(1)}
            runner.evaluate({"x": np.float32(2), "reward": np.float32(0.5), **told})
            runner.evaluate({"reward": 2, "done": np.uint8(1), "truncated": False, "step": 2})

    with contextlib.closing(CompilerEnv(name, timeout=BOUND)) as env:
        asking = in_thread(compiler)
        env.reset()
        assert env.step(0)[1:4] == (0.5, False, False)
        observation, *turn, info = env.step(0)
        assert turn == [2, True, False] and observation["x"] == 2 and info["step"] == 2
        asking.result()


def test_questions_in_flight_belong_to_their_compilers_episode_in_order(name, in_thread):
    """They come while another environment waits for its own compiler."""
    sent = threading.Event()

    def busy():
        with connect(name, connect_timeout=BOUND) as runner:
            runner.evaluate({"x": np.int64(20)})
            sent.wait(BOUND)
            return int(runner.evaluate({"x": np.int64(21)}))

    def compiler():
        with connect(name, connect_timeout=BOUND) as runner:
            tickets = [runner.send({"x": np.int64(i)}) for i in range(3)]
            sent.set()
            return [int(runner.receive(ticket)) for ticket in tickets]

    with CompilerPool(name) as compilers:
        first, second = (CompilerEnv(compilers, timeout=BOUND) for _ in range(2))
        waiting = in_thread(busy)
        first.reset()
        first.send(7)
        asking = in_thread(compiler)
        assert first.receive()[0]["x"] == 21
        seen = [second.reset()[0], second.step(4)[0], second.step(5)[0]]
        assert [each["x"].item() for each in seen] == [0, 1, 2]
        first.send(8)
        second.send(6)
        assert asking.result() == [4, 5, 6] and waiting.result() == 8


def test_environments_of_one_host_do_not_take_each_others_requests(name, in_thread):
    """A vector and single environments, whose requests come while another waits."""

    def compiler(length):
        with connect(name, connect_timeout=BOUND) as runner:
            observations = [{"x": np.float32(i)} for i in range(length + 1)]
            drive(Recorded(observations, [float(length)] * length), Agent(runner))

    with CompilerPool(name) as compilers:
        vector = CompilerVectorEnv(compilers, 2, timeout=BOUND)
        single = CompilerEnv(compilers, timeout=BOUND)
        asking = [in_thread(compiler, length) for length in (30, 30)]
        vector.reset()
        asking.append(in_thread(compiler, 30))
        single.reset()
        for i in range(30):
            vector.send([0, 0])
            single.send(0)
            if i % 2:
                one, many = single.receive(), vector.receive()
            else:
                many, one = vector.receive(), single.receive()
            assert one[0]["x"] == i + 1 and many[0]["x"].tolist() == [i + 1] * 2
            assert one[1] == 30 and many[1].tolist() == [30, 30]
        assert one[2] and many[2].all()
        for each in asking:
            each.result()


def test_a_compiler_on_a_dead_ones_channel_ends_that_ones_episode_and_keeps_its_own(
    name, in_thread
):
    def compilers():
        for asked in [0], [1, 2]:
            with connect(name, connect_timeout=BOUND) as runner:
                for x in asked:
                    runner.evaluate({"x": np.float32(x)})

    with CompilerPool(name) as pool:
        first, second, third = (CompilerEnv(pool, timeout=limit) for limit in (BOUND, BOUND, 0.5))
        asking = in_thread(compilers)
        first.reset()
        first.send(0)
        assert second.reset()[0]["x"] == 1
        assert first.receive()[4]["error"] == LEFT
        second.send(0)
        with pytest.raises(DeadlineError):  # it receives what is the second's
            third.reset()
        assert second.receive()[0]["x"] == 2
        second.step(0)
        asking.result()
