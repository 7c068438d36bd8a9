"""What n compilers said last, in arrays of a row for each, which C (_fastpath.Steps) fills."""

from typing import Any

import numpy as np

from shmbridge import _fastpath


class Rows:
    """Arrays of n rows.

    Attributes:
        features: By name, an array of a row for each compiler, once the first observation has come.
        rewards, terminated, truncated, steps: float64[n], bool[n], bool[n], int64[n].
        agents: int64[n], whose turn it is: a place in `names`, -1 where agents have no name.
        infos: What else came with the last request, by row.
        outcomes: Infos of episodes that ended otherwise than by their compiler's word, by row.
        core: C's part.
    """

    def __init__(self, host: int, n: int) -> None:
        self.n = n
        self.features: dict[str, np.ndarray[Any, Any]] = {}
        self.rewards, self.steps = np.zeros(n), np.zeros(n, np.int64)
        self.terminated, self.truncated = np.zeros(n, bool), np.zeros(n, bool)
        self.agents, self.names = np.full(n, -1, np.int64), list[bytes]()
        self.infos: dict[int, dict[str, Any]] = {}
        self.outcomes: dict[int, dict[str, Any]] = {}
        arrays = (self.rewards, self.terminated, self.truncated, self.steps, self.agents)
        self.core = _fastpath.Steps(host, *arrays, self.names)

    def forget(self) -> None:
        """What belongs to the last step."""
        if self.infos or self.core.ended:
            self.infos.clear()
            self.outcomes.clear()
            self.core.ended = 0

    def observation(self, row: int) -> dict[str, Any]:
        """A row's observation, as arrays of its own."""
        return {name: each[row, ...].copy() for name, each in self.features.items()}

    def info(self, row: int) -> dict[str, Any]:
        """What came with it, or how the episode ended."""
        if row in self.outcomes:
            return self.outcomes[row]
        info = {**self.infos.get(row, {}), "step": self.steps.item(row)}
        agent = self.agents.item(row)
        if agent >= 0:
            info["agent"] = self.name_of(agent)
        if "action_mask" in self.features:
            info["action_mask"] = self.features["action_mask"][row].copy()
        return info

    def name_of(self, agent: int) -> str:
        return self.names[agent].decode(errors="surrogateescape")
