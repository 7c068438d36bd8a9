"""A bandit for two agents that treats similar loops as one."""

from functools import cache
from pathlib import Path

import numpy as np

UNKNOWN = np.iinfo(np.int64).max  # a stride
DISTRIBUTE = [np.int64(0), np.int64(1)]
# Vector width, interleave count and unroll count. The first leaves everything to LLVM.
VECTORIZE = np.array(
    [(0, 0, 0)]
    + [(1, 1, unroll) for unroll in (1, 2, 4, 8)]
    + [(width, interleave, 1) for width in (2, 4, 8, 16) for interleave in (1, 2, 4)]
)
ACTIONS = {"distribute": DISTRIBUTE, "vectorize": VECTORIZE}
NEAR = 0.7  # the distance within which loops are similar
DOUBT = 0.5  # imaginary loops without a gain, added to those seen


def cycles(request):
    """bool[instructions]: does an instruction depend on its own result of an earlier iteration?
    Uses the transitive closure of the dependence graph."""
    size = len(request["opcodes"])
    reach = np.zeros((size, size), bool)
    for name in ("uses", "memory"):
        for i, row in enumerate(request[name]):
            reach[i, row] = True
    for _ in range(max(1, size - 1).bit_length()):
        reach |= (reach.astype(np.float32) @ reach.astype(np.float32)) > 0
    return reach.diagonal()


def observe(request):
    """float64[14]: a loop as numbers of about the same size."""
    opcodes, strides = np.array(request["opcodes"]), np.asarray(request["strides"])
    cycle, bytes = cycles(request), np.asarray(request["bytes"])
    real = np.char.startswith(opcodes, "f")  # fadd, fmul, fcmp, ...

    def count(kind):
        return np.log1p(np.sum(kind))

    return np.array(
        [
            count(opcodes != ""),
            count(opcodes == "load"),
            count(opcodes == "store"),
            count(opcodes == "phi"),
            count(real),
            count(cycle & real),
            count(cycle & np.isin(opcodes, ["load", "store"])),
            count(request["blocks"]),
            count(strides == UNKNOWN),
            count((strides != UNKNOWN) & (np.abs(strides) > bytes)),
            np.log2(bytes.max(initial=1)),
            2.0 * bool(request["independent"]),
            float(request["pointer_checks"] > 0),
            np.log2(max(1, int(request["safe_bits"]))) / 4,
        ]
    )


class Experience:
    """Loops seen, which action each agent took there, and what the whole compilation gained."""

    def __init__(self):
        self.seen = {agent: ([], [], []) for agent in ACTIONS}

    def add(self, agent, x, action, reward):
        for column, value in zip(self.seen[agent], (x, action, reward), strict=True):
            column.append(value)

    def expect(self, agent, x):
        """float64[actions], float64[actions]: what each action gained on similar loops, and how
        many these are."""
        xs, actions, rewards = map(np.array, self.seen[agent])
        gained, seen = np.zeros((2, len(ACTIONS[agent])))
        if len(xs):
            alike = np.exp(-((xs - x) ** 2).sum(axis=1) / (2 * NEAR**2))
            np.add.at(seen, actions, alike)
            np.add.at(gained, actions, alike * rewards)
        return gained / (seen + DOUBT), seen

    def save(self, path):
        np.savez(
            path, **{f"{a}{i}": column for a in ACTIONS for i, column in enumerate(self.seen[a])}
        )

    @classmethod
    def load(cls, path):
        experience, columns = cls(), np.load(path)
        experience.seen = {a: tuple(list(columns[f"{a}{i}"]) for i in range(3)) for a in ACTIONS}
        return experience


def choose(experience, agent, x, random=None):
    """The number of the most promising action. random: also tries actions that it knows little
    about (UCB)."""
    gained, seen = experience.expect(agent, x)
    if random:
        gained = gained + 0.2 / np.sqrt(seen + DOUBT) + 1e-6 * random.random(len(gained))
    return int(gained.argmax())


@cache
def remembered():
    return Experience.load(Path(__file__).parent / "results/experience.npz")


def learnt(request):
    """run.py's policy, for one question: `shmbridge serve loops --python policy:learnt`."""
    agent = request["agent"]
    return ACTIONS[agent][choose(remembered(), agent, observe(request))]
