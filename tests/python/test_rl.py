"""Environments inside the compiler: choices, the driver, and what a trainer sees of them."""

import contextlib
import math
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shmbridge import (
    ClosedError,
    DeadlineError,
    Host,
    InvalidError,
    MismatchError,
    ModelError,
    TooLargeError,
    _config,
    connect,
)
from shmbridge.rl import Agent, Environment, Random, choose, drive
from shmbridge.trainer import CompilerEnv, Compilers, as_gymnasium

BOUND = 20  # seconds, of every wait

# ---- Choices ----

MASK = (1 << 64) - 1
finite = st.floats(-50, 50)
vectors = st.lists(finite, min_size=1, max_size=40)


class Reference:
    """SplitMix64 as its paper has it."""

    def __init__(self, seed):
        self.state = seed & MASK

    def __call__(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return ((z ^ (z >> 31)) >> 11) * 2.0**-53


def test_the_generator_is_splitmix64():
    random = Random(1234567)  # figures of the reference implementation, shifted
    assert [int(random() * 2**53) for _ in range(3)] == [
        n >> 11 for n in (6457827717110365317, 3203168211198807973, 9817491932198370423)
    ]
    for seed in (0, -1, 2**64 - 1, 2**70 + 3):
        random, reference = Random(seed), Reference(seed)
        assert [random() for _ in range(50)] == [reference() for _ in range(50)]


@given(vectors, st.sampled_from(["float16", "float32", "float64", "int8", "int32", "int64"]))
def test_argmax_is_numpys(values, dtype):
    array = np.array([*values, 1.0]).astype(dtype)
    assert choose(array) == int(np.argmax(array))
    assert choose(array.reshape(1, -1)) == int(np.argmax(array))


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_argmax_tells_neighbours_apart_that_no_double_does(dtype):
    assert choose(np.array([2**62, 2**62 + 1, 2**62], dtype)) == 1


def test_argmax_of_every_dtype():
    import ml_dtypes

    dtypes = [
        "bool",
        *(f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)),
        "float16",
        "float32",
        "float64",
    ]
    for dtype in [*dtypes, ml_dtypes.bfloat16]:
        assert choose(np.array([0, 1, 0, 1]).astype(dtype)) == 1
        assert choose(np.array([0, 1, 0]).astype(dtype), "probabilities", Random(5)) == 1


@given(vectors, st.integers(0, MASK))
def test_sampling_logits_is_the_inverse_of_their_softmax(values, seed):
    array = np.array([*values, 0.0])
    weights = np.exp(array - array.max())
    ends, at = np.cumsum(weights) / weights.sum(), Reference(seed)()
    expected = int(np.searchsorted(ends, at, side="right"))
    found = choose(array, "logits", Random(seed))
    assert found == expected or abs(ends[min(found, expected)] - at) < 1e-12


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=40), st.integers(0, MASK))
def test_sampling_probabilities_takes_each_by_its_share(values, seed):
    array = np.array([*values, 1.0], np.float32)
    ends, at = np.cumsum(array, dtype=float) / array.sum(dtype=float), Reference(seed)()
    expected = int(np.searchsorted(ends, at, side="right"))
    found = choose(array, "probabilities", Random(seed))
    assert array[found] > 0 and (found == expected or abs(ends[min(found, expected)] - at) < 1e-9)


def test_frequencies_are_the_probabilities():
    random, shares = Random(7), np.array([0.5, 0.0, 0.25, 0.25])
    found = (
        np.bincount([choose(shares, "probabilities", random) for _ in range(4000)], minlength=4)
        / 4000
    )
    assert np.abs(found - shares).max() < 0.03 and found[1] == 0
    found = (
        np.bincount(
            [choose(np.log(shares + 1e-300), "logits", random) for _ in range(4000)], minlength=4
        )
        / 4000
    )
    assert np.abs(found - shares).max() < 0.03


def test_masked_logits_are_never_chosen():
    masked = np.array([-math.inf, 3, -math.inf, 1000, -math.inf])
    assert {choose(masked, "logits", Random(seed)) for seed in range(50)} == {3}
    assert {
        choose(np.array([math.inf, 0, math.inf]), "logits", Random(seed)) for seed in range(50)
    } == {0, 2}
    assert choose(np.array([-math.inf, -math.inf])) == 0


@pytest.mark.parametrize("how", ["argmax", "logits", "probabilities"])
def test_a_single_integer_is_an_action_already(how):
    for value in (7, np.int32(7), np.array([[7]], np.uint8), -3, np.uint64(2**63 - 1)):
        assert choose(value, how) == int(np.asarray(value).item())
    assert choose(True, how) == 1
    assert choose(np.array([0.25]), how) == 0  # the only one there is


@pytest.mark.parametrize(
    "advice, how, error, says",
    [
        (np.array([]), "argmax", MismatchError, "an empty one"),
        ("text", "argmax", MismatchError, "text or a list"),
        (0.5, "argmax", MismatchError, "a single float"),
        (np.array([1, math.nan]), "argmax", ModelError, "NaN"),
        (np.array([math.nan, 1]), "logits", ModelError, "NaN"),
        (np.array([-math.inf, -math.inf]), "logits", ModelError, "-infinity alone"),
        (np.array([-1.0, 2]), "probabilities", ModelError, "are these logits"),
        (np.array([0.0, 0]), "probabilities", ModelError, "zero or infinity"),
        (np.array([math.inf, 0]), "probabilities", ModelError, "zero or infinity"),
        (np.uint64(2**63), "argmax", ModelError, "beyond int64"),
        (np.array([1, 2]), "raw", InvalidError, "argmax"),
        (np.array([1, 2]), "best", InvalidError, "expected one of argmax"),
    ],
)
def test_what_is_no_choice_is_an_error(advice, how, error, says):
    with pytest.raises(error, match=says):
        choose(advice, how)


# ---- The driver ----


class Corridor(Environment):
    """Cells 0 to `length`; action 0 goes left, 1 right; the end is worth 1, each step costs 0.01."""

    length = 4

    def __init__(self):
        self.actions, self.errors = [], []

    def observe(self):
        return {"cell": np.eye(self.length + 1, dtype=np.float32)[self.at], "function": "main"}

    def reset(self):
        self.at, self.actions = 0, []
        return self.observe()

    def step(self, action):
        self.actions.append(action.index)
        self.at = min(max(self.at + (1 if action.index else -1), 0), self.length)
        self.add_reward(-0.01)
        if self.at == self.length:
            self.add_reward(1)
            self.set_done()
        return self.observe()


class Patient(Corridor):
    """Goes right where nobody advises."""

    def on_error(self, error):
        self.errors.append(error)
        return 1


def right(request):
    return np.array([0, 1], np.float32)


def test_a_policy_sees_the_observations_alone(serve, name):
    seen = []

    def policy(request):
        seen.append(set(request))
        return right(request)

    with serve(policy), connect(name) as runner:
        agent, corridor = Agent(runner), Corridor()
        for _ in range(2):
            drive(corridor, agent)
            assert (agent.steps, round(agent.reward, 2), corridor.actions) == (
                4,
                0.96,
                [1, 1, 1, 1],
            )
    assert seen == [{"cell", "function"}] * 8  # and no report


def test_a_learner_gets_rewards_and_the_end(serve, name):
    seen = []

    def trainer(request):
        seen.append(
            {key: value for key, value in request.items() if key not in ("cell", "function")}
        )
        return {"learner": 1}

    with serve(trainer), connect(name) as runner:
        drive(Corridor(), Agent(runner, "walker"))
        drive(Corridor(), Agent(runner), max_steps=1)
    assert seen[0] == {"agent": "walker"}
    assert [r["step"] for r in seen[1:5]] == [1, 2, 3, 4]
    assert [round(float(r["reward"]), 2) for r in seen[1:5]] == [-0.01, -0.01, -0.01, 0.99]
    assert [bool(r["done"]) for r in seen[1:5]] == [False, False, False, True]
    assert not any(r["truncated"] for r in seen[1:5]) and all(
        r["agent"] == "walker" for r in seen[1:5]
    )
    assert seen[5] == {} and len(seen) == 7
    assert (bool(seen[6]["done"]), bool(seen[6]["truncated"]), int(seen[6]["step"])) == (
        False,
        True,
        1,
    )


def test_raw_advice_is_the_environments_to_read(serve, name):
    class Raw(Corridor):
        def step(self, action):
            self.seen = action.advice
            self.set_done()

    with serve(lambda request: {"unroll": 4, "tile": np.arange(2)}), connect(name) as runner:
        drive(environment := Raw(), Agent(runner, choice="raw"))
        assert environment.seen["unroll"] == 4 and environment.seen["tile"].tolist() == [0, 1]
        drive(environment, Agent(runner, choice="raw", advice="tile"))
        assert environment.seen.tolist() == [0, 1]
        drive(environment, Agent(runner, advice="tile"))
        with pytest.raises(MismatchError, match="expected advice of one field, found unroll, tile"):
            drive(environment, Agent(runner))
        with pytest.raises(MismatchError, match="expected advice value, found unroll, tile"):
            drive(environment, Agent(runner, advice="value"))


def test_an_agent_may_choose_itself(serve, name):
    class Greedy(Agent):
        """Takes the policy's choice two times of three."""

        def act(self, action):
            return int(action.advice[0] > 5) if self.steps % 3 == 2 else None

    with serve(right), connect(name) as runner:
        drive(corridor := Corridor(), Greedy(runner))
    assert corridor.actions == [1, 1, 0, 1, 1, 0, 1, 1]


class Tag(Environment):
    """Three agents by turns; who is "it" tells who is next."""

    order = ("red", "green", "red", "blue", "green")

    def reset(self):
        self.log = []
        self.next_agent(self.order[0])
        return {"turn": 0}

    def step(self, action):
        self.log.append((action.agent, action.index))
        self.add_reward(1)
        if len(self.log) == len(self.order):
            self.set_done()
            return None
        self.next_agent(self.order[len(self.log)])
        return {"turn": len(self.log)}


def test_several_agents_share_a_runner(serve, name):
    seen = []

    def trainer(request):
        seen.append(
            (request["agent"], int(request.get("turn", -1)), bool(request.get("done", False)))
        )
        return {"learner": 10 * len(seen)}

    with serve(trainer), connect(name) as runner:
        agents = [Agent(runner, color) for color in ("red", "green", "blue")]
        drive(tag := Tag(), agents)
    assert tag.log == [(color, 10 * (i + 1)) for i, color in enumerate(Tag.order)]
    assert seen == [(color, i, False) for i, color in enumerate(Tag.order)] + [("green", -1, True)]
    assert [(agent.steps, agent.reward) for agent in agents] == [(2, 2), (2, 2), (1, 1)]


def test_several_agents_with_runners_of_their_own(serve, name):
    seen = []

    def trainer(request):
        seen.append(
            (request["agent"], float(request.get("reward", -1)), bool(request.get("done", False)))
        )
        return {"learner": 1}

    with serve(trainer), connect(name) as a, connect(name) as b, connect(name) as c:
        drive(Tag(), [Agent(a, "red"), Agent(b, "green"), Agent(c, "blue")])
    assert seen[:5] == [
        ("red", -1, False),
        ("green", -1, False),
        ("red", 1, False),
        ("blue", -1, False),
        ("green", 1, False),
    ]
    assert sorted(seen[5:]) == [("blue", 1, True), ("green", 1, True), ("red", 1, True)]


def test_wrong_agents_are_errors(serve, name):
    with serve(right), connect(name) as runner:
        for agents in ([], [Agent(runner), Agent(runner)]):
            with pytest.raises(InvalidError, match="agents of different names"):
                drive(Corridor(), agents)
        with pytest.raises(InvalidError, match="names an agent 'red': expected one of blue"):
            drive(Tag(), Agent(runner, "blue"))
        with pytest.raises(InvalidError, match="no episode is under way"):
            Corridor().add_reward(1)
        with pytest.raises(InvalidError, match="expected one of argmax"):
            Agent(runner, choice="best")


def test_done_at_reset_asks_nobody(serve, name):
    class Nothing(Corridor):
        def reset(self):
            self.set_done()

    with serve(lambda request: pytest.fail("asked")), connect(name) as runner:
        drive(Nothing(), agent := Agent(runner))
        assert agent.steps == 0


@pytest.mark.parametrize("where", ["reset", "step", "act", "on_error"])
def test_exceptions_come_through_and_the_trainer_hears_of_the_end(serve, name, where):
    ends = []

    def trainer(request):
        if "step" in request and (request["done"] or request["truncated"]):
            ends.append(bool(request["truncated"]))
        if where == "on_error" and "step" in request:
            raise ValueError("no idea")
        return {"learner": 1}

    class Boom(RuntimeError):
        pass

    def boom(*_):
        raise Boom

    with serve(trainer), connect(name) as runner:
        corridor, agent = Corridor(), Agent(runner)
        setattr(agent if where == "act" else corridor, where, boom)
        with pytest.raises(Boom):
            drive(corridor, agent)
        assert ends == ([] if where == "reset" else [True])
        if where != "on_error":
            drive(Corridor(), Agent(runner), 2)  # all is as before


def test_an_error_ends_the_episode_or_the_environment_knows_what_to_do(serve, name):
    def flaky(request):
        if request["cell"][2]:
            raise ValueError("not here")
        return 1

    with serve(flaky), connect(name) as runner:
        with pytest.raises(ModelError, match="not here"):
            drive(Corridor(), agent := Agent(runner))
        assert agent.steps == 2
        drive(patient := Patient(), agent)
        assert patient.actions == [1] * 4 and len(patient.errors) == 1


def test_a_host_that_goes_leaves_the_heuristic(serve, name):
    with contextlib.ExitStack() as stack:
        with serve(right):
            runner = stack.enter_context(connect(name))
        drive(patient := Patient(), Agent(runner))
        assert patient.actions == [1] * 4 and {type(error) for error in patient.errors} == {
            ClosedError
        }
        with pytest.raises(ClosedError):
            drive(Corridor(), Agent(runner))


def test_reserved_names_are_told(serve, name):
    class Greedy(Corridor):
        def observe(self):
            return {"reward": 1.0}

    told = pytest.raises(InvalidError, match="may not be called reward")
    with serve(lambda request: {"learner": 0}), connect(name) as runner, told:
        drive(Greedy(), Agent(runner))


# ---- The trainer ----


@pytest.fixture
def walk(in_thread, name):
    """walk(environment, episodes): drives them in a thread, as a compiler; the thread's result: actions of each."""

    def go(corridor, episodes=1, max_steps=50, agents=("",)):
        def compiler():
            done = []
            with connect(name, connect_timeout=BOUND) as runner:
                for _ in range(episodes):
                    try:
                        drive(corridor, [Agent(runner, agent) for agent in agents], max_steps)
                        done.append(
                            list(getattr(corridor, "actions", getattr(corridor, "log", ())))
                        )
                    except Exception as error:
                        done.append(error)
            return done

        return in_thread(compiler)

    return go


def test_gymnasiums_methods(name, walk):
    env = CompilerEnv(name, actions=2, timeout=BOUND)
    compiler = walk(Corridor(), episodes=2)
    observation, info = env.reset()
    assert observation["cell"].tolist() == [1, 0, 0, 0, 0] and info == {
        "function": "main",
        "step": 0,
    }
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
    assert "given this episode up" in str(first)


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
        assert env.step(0.5)[2:4] == (
            False,
            True,
        )  # the compiler could not choose, and said that it ends
        env.reset()
        with pytest.raises(InvalidError, match="found object"):
            env.step(object())
        for _ in range(4):
            turn = env.step(1)  # it still waits
        assert turn[2]
        first, second = compiler.result()
        assert (
            isinstance(first, MismatchError)
            and "a single float" in str(first)
            and second == [1] * 4
        )


def test_an_action_that_is_too_large_ends_the_episode(name, walk):
    with contextlib.closing(CompilerEnv(name, timeout=BOUND)) as env:
        compiler = walk(Corridor(), episodes=2)
        env.reset()
        env.step(1)
        with pytest.raises(TooLargeError):
            env.step(np.zeros(1 << 16))
        assert env.receive()[2:4] == (False, True)
        env.reset()
        env.close()
        assert [type(error) for error in compiler.result()] == [TooLargeError, ModelError]


def test_closing_in_any_order(name, walk):
    with Compilers(name) as compilers:
        env = CompilerEnv(compilers, timeout=BOUND)
        compiler = walk(Corridor())
        env.reset()
    env.close()
    env.close()
    assert isinstance(compiler.result()[0], ClosedError)
    with pytest.raises(ClosedError):
        env.reset()


def test_agents_with_models_of_their_own_behind_one_url(tmp_path):
    helper = pytest.importorskip("onnx.helper", reason="makes the models")
    pytest.importorskip("onnxruntime", reason="runs them")
    import onnx

    files = []
    for color, weight in (("red", 1.0), ("green", -1.0), ("blue", 1.0)):
        turn = helper.make_tensor_value_info("turn", onnx.TensorProto.FLOAT, [3])
        out = helper.make_tensor_value_info("out", onnx.TensorProto.FLOAT, [3])
        constant = helper.make_tensor("w", onnx.TensorProto.FLOAT, [1], [weight])
        graph = helper.make_graph(
            [helper.make_node("Mul", ["turn", "w"], ["out"])], color, [turn], [out], [constant]
        )
        files.append(f"agent.{color}={tmp_path}/{color}.onnx")
        onnx.save(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8),
            tmp_path / f"{color}.onnx",
        )

    class Colors(Tag):
        def reset(self):
            super().reset()
            return {"turn": np.array([0, 1, 2], np.float32)}

        def step(self, action):
            return super().step(action) and {"turn": np.array([0, 1, 2], np.float32)}

    with connect(f"onnx://?{'&'.join(files)}") as runner:
        drive(colors := Colors(), [Agent(runner, color) for color in ("red", "green", "blue")])
    assert colors.log == [("red", 2), ("green", 0), ("red", 2), ("blue", 2), ("green", 0)]


def test_actions_of_several_fields(name, in_thread):
    class Tile(Corridor):
        def step(self, action):
            self.actions.append((action.advice["tile"], action.advice["unroll"]))
            return super().step(action)

    def compiler():
        with connect(name, connect_timeout=BOUND) as runner:
            drive(tile := Tile(), Agent(runner, choice="raw"), 3)
            return tile.actions

    with contextlib.closing(CompilerEnv(name, timeout=BOUND)) as env:
        tiling = in_thread(compiler)
        env.reset()
        for i in range(3):
            turn = env.step({"tile": i, "unroll": 2 * i})
        assert turn[3] and tiling.result()[::2] == [(0, 0), (1, 2), (2, 4)]


def test_batches_of_several_compilers(name, walk, in_thread):
    """Without a CompilerEnv: a loop over batches, which have the first requests apart from the others."""
    rewards, ends = [], []

    def trainer(host):
        for batch in host.batches(max_size=4, max_wait=0.01):
            if "step" not in batch:
                batch.reply(learner=np.ones(batch.size, np.int64))
                continue
            rewards.extend(batch["reward"].tolist())
            ends.extend(batch["done"].tolist())
            batch.reply(np.ones(batch.size, np.int64))

    with Host(name) as host:
        training = in_thread(trainer, host)
        compilers = [walk(Corridor(), episodes=2) for _ in range(3)]
        assert [compiler.result() for compiler in compilers] == [[[1] * 4] * 2] * 3
        host.close()
        training.result()
    assert len(rewards) == 24 and sum(ends) == 6 and round(sum(rewards), 2) == 5.76


def test_agents_are_told_of(name, walk):
    with contextlib.closing(CompilerEnv(name, timeout=BOUND)) as env:
        compiler = walk(Tag(), agents=("red", "green", "blue"))
        turns = [env.reset()[1]["agent"]]
        for i in range(5):
            observation, reward, done, _, info = env.step(i)
            turns.append(info["agent"])
        assert done and reward == 1 and turns[:5] == list(Tag.order)
        assert compiler.result() == [list(zip(Tag.order, range(5), strict=True))]


def test_several_compilers_at_once(name, walk):
    with Compilers(name) as all_of_them:
        envs = [CompilerEnv(all_of_them, timeout=BOUND) for _ in range(3)]
        compilers = [walk(Corridor(), episodes=2) for _ in envs]
        for _ in range(2):
            assert [env.reset()[1]["step"] for env in envs] == [0] * 3
            for step in range(4):
                for env in envs:
                    env.send(1)
                turns = [env.receive() for env in envs]
                assert [turn[4]["step"] for turn in turns] == [step + 1] * 3
            assert all(turn[2] for turn in turns)
        assert [compiler.result() for compiler in compilers] == [[[1] * 4] * 2] * 3


DYING = """
import sys
import shmbridge
from shmbridge.rl import Agent, Environment, drive

class Endless(Environment):
    def reset(self): return {"x": 1.0}
    def step(self, action): return {"x": float(action.index)}

drive(Endless(), Agent(shmbridge.connect(sys.argv[1], connect_timeout=20)))
"""


@pytest.mark.parametrize("asking", [True, False], ids=["while it asks", "while it computes"])
def test_a_killed_compiler_truncates_and_the_next_one_begins(name, python, walk, asking):
    code = (
        DYING
        if asking
        else DYING.replace(
            "step(self, action): ",
            "step(self, action): import time; print('in', flush=True); time.sleep(60);",
        )
    )
    with contextlib.closing(CompilerEnv(name, timeout=BOUND)) as env:
        victim = python(code, name)
        env.reset()
        if asking:
            env.step(3)
            victim.kill()
            victim.wait()
        else:
            env.send(3)
            victim.line()
            victim.kill()
        observation, reward, done, truncated, info = env.step(4) if asking else env.receive()
        assert (reward, done, truncated) == (0, False, True) and "died" in info["error"]
        assert observation["x"] == (3 if asking else 1)
        walk(Corridor())
        assert env.reset()[0]["cell"][0] == 1


def test_a_new_compiler_on_the_dead_ones_channel_truncates_too(name, python, walk):
    with contextlib.closing(CompilerEnv(name, timeout=BOUND, channels=1)) as env:
        victim = python(DYING, name)
        env.reset()
        victim.kill()
        victim.wait()
        compiler = walk(Corridor())
        assert env.step(1)[3]
        env.reset()
        assert [env.step(1)[2] for _ in range(4)] == [False] * 3 + [True]
        assert compiler.result() == [[1] * 4]


def test_closing_the_trainer_leaves_the_compiler_its_heuristic(name, walk):
    env = CompilerEnv(name, timeout=BOUND)
    compiler = walk(patient := Patient())
    env.reset()
    env.step(0)
    env.close()
    assert compiler.result() == [[0, 1, 1, 1, 1]] and isinstance(
        patient.errors[0], (ClosedError, ModelError)
    )


TRAINER = """
import sys
from shmbridge.trainer import CompilerEnv

env = CompilerEnv(sys.argv[1])
print("up", flush=True)
env.reset()
env.step(0)
env.send(0)
env.receive()
print("in", flush=True)
sys.stdin.readline()
"""


def test_a_killed_trainer_leaves_the_compiler_its_heuristic(name, python, walk):
    trainer = python(TRAINER, name)
    assert trainer.line() == "up"
    compiler = walk(patient := Patient())
    assert trainer.line() == "in"
    trainer.kill()
    assert compiler.result() == [[0, 0, 1, 1, 1, 1]] and len(patient.errors) == 4
    Host(name).close()  # takes the dead one's files over


def test_silence_is_bounded(name, walk, in_thread):
    nobody = pytest.raises(DeadlineError, match="no compiler began")
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
        env._timeout = 0.05
        assert env.step(1)[3:] == (True, {"error": "the compiler asked nothing for 0.05 s"})
        go.set()
        env._timeout = 0.5
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


def test_gymnasium_takes_it(name, walk):
    gymnasium = pytest.importorskip(
        "gymnasium", reason="the trainer's methods are checked by their own package"
    )
    env = CompilerEnv(name, actions=2, timeout=BOUND)
    compiler = walk(Corridor(), episodes=2)
    adapted = gymnasium.wrappers.RecordEpisodeStatistics(as_gymnasium(env))
    assert adapted.action_space == gymnasium.spaces.Discrete(2)
    for _ in range(2):
        observation, _ = adapted.reset(seed=1)
        assert adapted.observation_space.contains(observation)
        for _ in range(4):
            observation, _, done, _, info = adapted.step(1)
        assert done and info["episode"]["l"] == 4
    adapted.close()
    assert compiler.result() == [[1] * 4] * 2


def test_gymnasium_is_not_imported_unasked(python):
    process = python(
        "import sys, shmbridge.trainer, shmbridge.rl; print('gymnasium' in sys.modules)"
    )
    assert process.end() == (0, "False")


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, MASK), how=st.sampled_from(["logits", "probabilities"]))
def test_equal_seeds_give_equal_actions(seed, how):
    shares = np.linspace(0, 1, 7, dtype=np.float32)
    a, b = Random(seed), Random(seed)
    assert [choose(shares, how, a) for _ in range(20)] == [
        choose(shares, how, b) for _ in range(20)
    ]


@pytest.mark.parametrize("words, why", [(["abc"], "'abc'"), (["5"], "onnx")])
def test_the_example_trainer_says_what_is_wrong_before_it_trains(words, why, tmp_path, new_name):
    (tmp_path / "onnx.py").write_text(
        "" if words == ["abc"] else "raise ImportError('no onnx here')"
    )
    trainer = _config.examples() / "python" / "trainer.py"
    command = [
        sys.executable,
        "-P",
        str(trainer),
        f"shm://{new_name()}",
        str(tmp_path / "policy.onnx"),
        *words,
    ]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1 and why in done.stderr and len(done.stderr.splitlines()) == 1, (
        done.stderr
    )
