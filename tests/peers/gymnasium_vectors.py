"""A pytest plugin: what Gymnasium's own tests call AsyncVectorEnv is a CompilerVectorEnv, whose
compilers are threads that have the tests' environments."""

import itertools
import os
import sys
from pathlib import Path

import gymnasium.vector
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.workers import Gym, GymWorkers

from shmbridge.envs import CompilerVectorEnv
from shmbridge.rl import Agent, drive

numbers = itertools.count()
OURS = {"step", "kind", "exit", "stderr", "command", "scores"}


class Slots(GymWorkers):
    """An environment for each slot, which lives on between its episodes, and has a seed where the
    test said one."""

    def __init__(self, envs):
        super().__init__()
        self.envs, self.seeded = envs, False

    def begin(self, slot, seed=None, options=None):
        self.make = lambda: None
        return super().begin(slot, (slot, seed if self.seeded else None), options)

    def drive(self, runner, seed, options):
        slot, number = seed
        drive(Gym(self.envs[slot], number), Agent(runner))


class Behind(CompilerVectorEnv):
    """Observations as they are, since these environments' are no dicts."""

    def __init__(self, env_fns, autoreset_mode=AutoresetMode.NEXT_STEP, shared_memory=True):
        self.envs = [make() for make in env_fns]
        self.workers = Slots(self.envs)
        name = f"gymnasium-{os.getpid()}-{next(numbers)}"
        space = self.envs[0].action_space
        options = {"actions": space, "timeout": 20, "autoreset_mode": autoreset_mode}
        super().__init__(name, len(self.envs), workers=self.workers, **options)

    @property
    def single_observation_space(self):
        return self.envs[0].observation_space

    @property
    def observation_space(self):
        return batch_space(self.single_observation_space, self.num_envs)

    def set_attr(self, name, values):
        for env, value in zip(self.envs, values, strict=True):
            setattr(env.unwrapped, name, value)

    def reset(self, *, seed=None, options=None):
        self.workers.seeded = seed is not None
        observations, infos = super().reset(seed=seed, options=options)
        self.workers.seeded = False
        return observations["observation"], plain(infos)

    def step(self, actions):
        observations, rewards, *ends, infos = super().step(np.asarray(actions))
        return observations["observation"], rewards, *ends, plain(infos)


def plain(infos):
    """Without what a compiler adds, and with final observations as they are."""
    kept = {name: value for name, value in infos.items() if name.strip("_") not in OURS}
    if "final_obs" in kept:
        last = [each and each["observation"] for each in kept["final_obs"]]
        kept["final_obs"] = np.empty(len(last), dtype=object)
        for i, each in enumerate(last):
            kept["final_obs"][i] = each if each is None or each.ndim else each.item()
        kept["final_info"] = plain(kept["final_info"])
    return kept


gymnasium.vector.AsyncVectorEnv = Behind
