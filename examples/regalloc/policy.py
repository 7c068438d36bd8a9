"""A linear policy for three agents: a task, a register, a place to split."""

import json
from functools import cache
from pathlib import Path

import numpy as np

# The features of a live range, of a register that it could have, of a place where it can be split.
RANGE = [
    "weight",
    "size",
    "spillable",
    "free",
    "cheapest_eviction",
    "evicts",
    "splits",
    "saved",
    "local",
    "uses",
    "neighbours",
    "rematerializable",
]
REGISTER = ["free", "evicts", "hint", "callee_saved", "used", "place_in_order"]
PLACE = ["loop", "saved", "copies", "copies_by_saved", "writes", "uses"]
TASKS = ["colour", "split", "spill"]
ENDS = np.cumsum([len(RANGE) * len(TASKS), len(REGISTER), len(PLACE)])
SIZE = int(ENDS[-1])


def parts(weights):
    """The agents' weights: float[..., 12, 3], float[..., 6], float[..., 6]."""
    task, colour, split = np.split(weights, ENDS[:-1], axis=-1)
    return {
        "task": task.reshape(*weights.shape[:-1], len(RANGE), len(TASKS)),
        "colour": colour,
        "split": split,
    }


def textbook():
    """float[SIZE]: a free register, else the best split if it saves anything, else the lightest
    eviction, else spill. Where the search begins."""
    weights = np.zeros(SIZE)
    its = parts(weights)  # views
    its["task"][RANGE.index("free"), 0] = 8
    its["task"][RANGE.index("evicts"), 0] = 1
    its["task"][RANGE.index("saved"), 1] = 4
    its["colour"][REGISTER.index("evicts")] = -4
    its["colour"][REGISTER.index("place_in_order")] = -0.1
    its["split"][PLACE.index("saved")] = 1
    its["split"][PLACE.index("copies")] = -1
    return weights


FEATURES = {"task": "range", "colour": "registers", "split": "places"}


def advise(batch, weights):
    """int64[rows]: for each request of one agent the allowed action with the greatest score.
    weights: float[rows, SIZE]."""
    agent = batch["agent"][0]
    x, its = np.asarray(batch[FEATURES[agent]]), parts(weights)[agent]
    scores = np.einsum("rf,rfa->ra" if agent == "task" else "raf,rf->ra", x, its)
    return np.where(np.asarray(batch["action_mask"]), scores, -np.inf).argmax(axis=1)


@cache
def found():
    """float[SIZE]: run.py's weights."""
    return np.array(json.loads((Path(__file__).parent / "results/weights.json").read_text()))


def learnt(request):
    """The trained policy, for `shmbridge serve regalloc --python policy:learnt`."""
    return one(request, found())


def start(request):
    """Where the training begins."""
    return one(request, textbook())


def one(request, weights):
    names, agent = ("action_mask", *FEATURES.values()), request["agent"]
    batch = {name: [request[name]] for name in names if name in request}
    batch["agent"] = [agent if isinstance(agent, str) else bytes(agent).decode()]  # a bitstream's
    return int(advise(batch, weights[None])[0])
