"""Environments, their bounds and how they choose."""

import numpy as np

from shmbridge.rl import Environment

MASK = (1 << 64) - 1


class Corridor(Environment):
    """Cells 0 to `length`; action 0 goes left, 1 right; the end is worth 1, each step costs
    0.01."""

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


class Plain(Corridor):
    """A corridor without texts: all of it goes through C."""

    def observe(self):
        return {"cell": super().observe()["cell"]}


class Masked(Plain):
    def observe(self):
        return super().observe() | {"action_mask": np.array([self.at > 0, True])}


class Spoken(Environment):
    """Two agents, and observations with texts and lists."""

    agents = ("red", "green")

    def observe(self):
        return {
            "x": np.float32(self.at),
            "words": ["a", "bc"][self.at % 2 :],
            "who": "né" * self.at,
        }

    def reset(self):
        self.at = 0
        return self.observe()

    def step(self, action):
        self.at += 1
        self.add_reward(1)
        self.next_agent(self.agents[self.at % 2])
        if self.at == 3:
            self.set_done()
        return self.observe()


class Patient(Corridor):
    """Goes right where nobody advises."""

    def on_error(self, error):
        self.errors.append(error)
        return 1


def right(request):
    return np.array([0, 1], np.float32)


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
