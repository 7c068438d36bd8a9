"""Environments inside the compiler: the driver, agents, and what a policy or a learner sees of
them."""

import os
import signal
import threading
import time

import numpy as np
import pytest
from support.environments import Corridor, Patient, Tag, right

from shmbridge import ClosedError, InvalidError, MismatchError, ModelError, connect
from shmbridge.rl import Agent, drive


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


class Unsure(Corridor):
    def step(self, action):
        self.add_reward(float("nan"))
        return super().step(action)


def test_wrong_agents_and_rewards_are_errors(serve, name):
    with serve(right), connect(name) as runner:
        with pytest.raises(InvalidError, match="expected one agent or more, found none"):
            drive(Corridor(), [])
        with pytest.raises(InvalidError, match="two agents have the same name, or none"):
            drive(Corridor(), [Agent(runner), Agent(runner)])
        with pytest.raises(InvalidError, match="max_steps=0: expected 1 or more"):
            drive(Corridor(), Agent(runner), max_steps=0)
        with pytest.raises(InvalidError, match='names an agent "red", which the driver'):
            drive(Tag(), Agent(runner, "blue"))
        with pytest.raises(InvalidError, match="expected a reward that is a number, found a NaN"):
            drive(Unsure(), Agent(runner))
        with pytest.raises(InvalidError, match="no episode is running"):
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


@pytest.mark.parametrize("where", ["reset", "step", "on_error"])
def test_exceptions_come_through_and_the_trainer_hears_of_the_end(serve, name, where):
    ends = []

    def trainer(request):
        if "step" in request and (request["done"] or request["truncated"]):
            ends.append((bool(request["truncated"]), request["error"]))
        if where == "on_error" and "step" in request:
            raise ValueError("no idea")
        return {"learner": 1}

    class Boom(RuntimeError):
        pass

    def boom(*_):
        raise Boom("so it \ud800 failed")

    with serve(trainer), connect(name) as runner:
        corridor, agent = Corridor(), Agent(runner)
        setattr(corridor, where, boom)
        with pytest.raises(Boom):
            drive(corridor, agent)
        assert len(ends) == (where != "reset")
        for truncated, error in ends:
            assert truncated and "Boom: so it ? failed" in error
        if where != "on_error":
            drive(Corridor(), Agent(runner), 2)  # all is as before


@pytest.mark.parametrize("where", ["question", "step"])
def test_ctrl_c_ends_an_episode_and_the_runner_goes_on(serve, name, where, in_thread):
    asked, interrupted, cells = threading.Event(), threading.Event(), []

    class Slow(Corridor):
        def step(self, action):
            if where == "step":
                asked.set()
                while (
                    True
                ):  # in steps: a wait of Python's may miss a signal that comes as it begins
                    time.sleep(0.05)
            return super().step(action)

    def trainer(request):
        cells.append(request["cell"])
        if where == "question" and len(cells) == 2:
            asked.set()
            interrupted.wait(30)
        return {"learner": 1}

    with serve(trainer), connect(name) as runner:
        agent = Agent(runner)
        threading.Thread(
            target=lambda: asked.wait() and os.kill(os.getpid(), signal.SIGINT)
        ).start()
        with pytest.raises(KeyboardInterrupt):
            drive(Slow(), agent)
        interrupted.set()
        drive(Corridor(), agent)
        assert agent.steps == 4
    assert len(cells) == (7 if where == "question" else 6)  # and no report


def test_what_no_request_can_carry_ends_the_episode(serve, name):
    class Odd(Corridor):
        def observe(self):
            return {"cell": object()}

    with serve(right), connect(name) as runner, pytest.raises(InvalidError, match="cell"):
        drive(Odd(), Agent(runner))


def test_a_runner_in_an_episode_asks_nothing_else(serve, name):
    class Curious(Corridor):
        def step(self, action):
            action.runner.evaluate({})

    class Closing(Corridor):
        def step(self, action):
            action.runner.close()
            return super().step(action)

    with serve(right), connect(name) as runner:
        with pytest.raises(InvalidError, match="this runner is in use"):
            drive(Curious(), Agent(runner))
        with pytest.raises(ClosedError, match="this runner is closed"):
            drive(Closing(), Agent(runner))
        with pytest.raises(ClosedError, match="this runner is closed"):
            drive(Corridor(), Agent(runner))


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


def test_reserved_names_are_told(serve, name):
    class Greedy(Corridor):
        def observe(self):
            return {"reward": 1.0}

    told = pytest.raises(InvalidError, match="two fields have the same name: reward")
    with serve(lambda request: {"learner": 0}), connect(name) as runner, told:
        drive(Greedy(), Agent(runner))
