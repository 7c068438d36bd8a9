"""A linear policy for two agents: the register to evict, and the next live range."""

import json
from functools import cache
from pathlib import Path

import numpy as np

# LLVM's features of a live range that a register holds, and of the one that wants a register: float[33], the last is the latter.
EVICT = [
    "nr_urgent",
    "nr_broken_hints",
    "is_hint",
    "is_local",
    "nr_rematerializable",
    "nr_defs_and_uses",
    "weighed_reads_by_max",
    "weighed_writes_by_max",
    "weighed_read_writes_by_max",
    "weighed_indvars_by_max",
    "hint_weights_by_max",
    "start_bb_freq_by_max",
    "end_bb_freq_by_max",
    "hottest_bb_freq_by_max",
    "liverange_size",
    "use_def_density",
    "max_stage",
    "min_stage",
]
PRIORITY = ["li_size", "weight", "stage"]
# Behind the weights of these: one for "evict nothing".
SIZE = len(EVICT) + 1 + len(PRIORITY)
AGENTS = {"evict": slice(0, len(EVICT) + 1), "priority": slice(len(EVICT) + 1, SIZE)}

# Where the search begins: the textbook's allocator, which spills what is least densely used, and allocates long ranges first.
START = np.zeros(SIZE)
START[EVICT.index("use_def_density")] = -1
START[AGENTS["priority"].start + PRIORITY.index("li_size")] = 1


def evict(batch, weights):
    """int64[rows]: for each request the allowed index with the greatest score. weights: float[rows,
    19]."""
    x = np.concatenate([batch[name] for name in EVICT], axis=1)  # float64[rows, 18, 33]
    scores = (weights[:, None, :-1] @ x)[:, 0]
    scores[:, -1] += weights[:, -1]
    allowed = np.asarray(batch["mask"])[:, 0] != 0
    return np.where(allowed, scores, -np.inf).argmax(axis=1)


def priority(batch, weights):
    """float32[rows]: the greatest is allocated first. weights: float[rows, 3]."""
    x = np.stack([np.asarray(batch[name], float)[:, 0] for name in PRIORITY], axis=1)
    x = np.log1p(np.clip(x, 0, 1e6))  # unspillable ranges have an infinite weight
    return np.exp(np.clip((x * weights).sum(axis=1), -30, 30)).astype(np.float32)


def advise(batch, weights):
    """The advice of the agent that a batch asks. weights: float[rows, SIZE]."""
    agent = {"index_to_evict": evict, "priority": priority}[batch["decision"][0]]
    return agent(batch, weights[:, AGENTS[agent.__name__]])


@cache
def found():
    """float64[SIZE]: run.py's weights."""
    return np.array(json.loads((Path(__file__).parent / "results/weights.json").read_text()))


def learnt(request):
    """Their advice on one request, for `shmbridge run --host policy:learnt`."""
    batch = {name: [value] for name, value in request.items()}
    return advise(batch, found()[None])[0]
