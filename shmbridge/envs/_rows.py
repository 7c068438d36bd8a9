"""What n compilers said last, a row of each array for each. C (_fastpath.Steps) fills it, and Python where C does not know what came."""

from __future__ import annotations

from typing import Any

import numpy as np

from shmbridge import _fastpath
from shmbridge._host.request import Request
from shmbridge._values import tensor
from shmbridge._values.tensor import Ragged
from shmbridge.errors import MismatchError

# What a request has beside the observation; and "reward.NAME", where several agents ask through one runner.
OWN = ("agent", "reward", "done", "truncated", "step")


class Rows:
    """Arrays of n rows.

    Attributes:
        features: By name, an array of a row for each compiler, once the first observation has come.
        rewards, terminated, truncated, steps: float64[n], bool[n], bool[n], int64[n].
        agents: int64[n], whose turn it is: a place in `names`, -1 where agents have no name.
        infos: What else came with the last request, by row.
        odd: Observations that are not like `features`, by row.
        outcomes: Infos of episodes that ended otherwise than by their compiler's word, by row.
        core: C's part.
    """

    def __init__(self, host: int, n: int, strict: bool) -> None:
        self.n = n
        self._strict = strict  # observations must be like the first
        self.features: dict[str, np.ndarray[Any, Any]] = {}
        self.rewards, self.steps = np.zeros(n), np.zeros(n, np.int64)
        self.terminated, self.truncated = np.zeros(n, bool), np.zeros(n, bool)
        self.agents, self.names = np.full(n, -1, np.int64), list[bytes]()
        self.infos: dict[int, dict[str, Any]] = {}
        self.odd: dict[int, dict[str, Any]] = {}
        self.outcomes: dict[int, dict[str, Any]] = {}
        arrays = (self.rewards, self.terminated, self.truncated, self.steps, self.agents)
        self.core = _fastpath.Steps(host, *arrays, self.names)

    def forget(self) -> None:
        """What belongs to the last step."""
        if not (self.infos or self.odd or self.core.ended):
            return
        self.infos.clear()
        self.odd.clear()
        self.outcomes.clear()
        self.core.ended = 0

    def observation(self, row: int) -> dict[str, Any]:
        """A row's observation, as arrays of its own."""
        if row in self.odd:
            return self.odd[row]
        return {name: each[row, ...].copy() for name, each in self.features.items()}

    def info(self, row: int) -> dict[str, Any]:
        """What came with it, or how the episode ended."""
        if row in self.outcomes:
            return self.outcomes[row]
        info = {**self.infos.get(row, {}), "step": self.steps.item(row)}
        agent = self.agents.item(row)
        if agent >= 0:
            info["agent"] = self.name_of(agent)
        if "action_mask" in self.features and row not in self.odd:
            info["action_mask"] = self.features["action_mask"][row].copy()
        return info

    def name_of(self, agent: int) -> str:
        """An agent's name."""
        return self.names[agent].decode(errors="surrogateescape")

    # ---- Read ----

    def read(self, row: int, request: Request) -> bool:
        """What a request says, into the row, but for what C knows of it. Does it say that the episode is over?

        Raises:
            MismatchError, TypeError, ValueError: It cannot be the row's.
        """
        values = {name: _copied(request[name]) for name in request}
        told = {name: values.pop(name, None) for name in OWN}
        rewards = {name[7:]: values.pop(name) for name in request if name.startswith("reward.")}
        tensors = {name: each for name, each in values.items() if isinstance(each, np.ndarray)}
        if not isinstance(told["agent"], str | None):
            raise MismatchError(
                f'expected "agent" to be a text, the name of an agent; found {told["agent"]!r:.100}'
            )
        self._observe(row, tensors)
        self.infos[row] = {name: each for name, each in values.items() if name not in tensors}
        if rewards:
            self.infos[row]["rewards"] = {who: float(each) for who, each in rewards.items()}
        self.agents[row] = -1 if told["agent"] is None else self._number(told["agent"])
        self.rewards[row], self.steps[row] = told["reward"] or 0.0, told["step"] or 0
        self.terminated[row], self.truncated[row] = bool(told["done"]), bool(told["truncated"])
        return bool(self.terminated[row] or self.truncated[row])

    def _observe(self, row: int, tensors: dict[str, np.ndarray[Any, Any]]) -> None:
        if tensors and not self.features:
            self.features = {
                name: np.zeros((self.n, *each.shape), each.dtype) for name, each in tensors.items()
            }
            self.core.shape(self.features)
        like = tensors.keys() == self.features.keys() and all(
            (each.shape, each.dtype) == (self.features[name].shape[1:], self.features[name].dtype)
            for name, each in tensors.items()
        )
        if not like and tensors:  # a report may have none
            if self._strict:
                one = {name: each[0] for name, each in self.features.items()}
                expected, found = tensor.describe(one), tensor.describe(tensors)
                raise MismatchError(f"expected observations of {expected}; found {found}")
            self.odd[row] = tensors
        for name, each in tensors.items() if like else ():
            self.features[name][row] = each

    def _number(self, agent: str) -> int:
        name = agent.encode(errors="surrogateescape")
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)


def _copied(value: Any) -> Any:
    """A value of a request that is kept beyond it."""
    if isinstance(value, np.ndarray):
        return value.copy()
    return Ragged(value.values.copy(), value.offsets) if isinstance(value, Ragged) else value
