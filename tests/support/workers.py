"""Workers without compilers: threads that have Gymnasium's environments as passes."""

import threading

import numpy as np

from shmbridge import ShmbridgeError, connect
from shmbridge.rl import Agent, Environment, drive
from shmbridge.training import Outcome, OutcomeKind


class Gym(Environment):
    """An environment of Gymnasium as a pass."""

    def __init__(self, env, seed, options=None):
        self.env, self.seed, self.options = env, seed, options

    def reset(self):
        return observed(self.env.reset(seed=self.seed, options=self.options)[0])

    def step(self, action):
        value = action.advice if action.index == 0 else action.index
        observation, reward, terminated, truncated, _ = self.env.step(np.asarray(value)[()])
        self.add_reward(float(reward))
        if terminated or truncated:
            self.set_done()
        return observed(observation)


def observed(observation):
    return observation if isinstance(observation, dict) else {"observation": observation}


class GymWorkers:
    """As Workers: an episode of make() for each environment and seed. `compile(runner, seed,
    options)` may do something else."""

    def __init__(self, make=None, compile=None, max_steps=None):
        self.make, self.max_steps = make, max_steps
        self.compile = compile or self.drive
        self.outcomes, self.begun, self.ended, self.threads = {}, [], [], []
        self.seeds = {}  # of later episodes, by environment
        self.closed = False

    def drive(self, runner, seed, options):
        drive(Gym(self.make(), seed), Agent(runner), self.max_steps)

    def open(self, url, channels=0):
        self.url = url

    channels = 1

    def check(self, options):
        pass

    def ahead(self, label):
        return False

    def reward(self, label):
        return 0.0

    def begin(self, env, seed=None, options=None):
        label = f"{env}-{len(self.begun)}"
        if seed is not None:
            self.seeds[env] = np.random.default_rng(seed)
        elif env in self.seeds and not options:
            seed = int(self.seeds[env].integers(1 << 31))
        self.begun.append((env, seed, options))
        self.threads.append(
            threading.Thread(target=self.run, args=(label, seed, options), daemon=True)
        )
        self.threads[-1].start()
        return label

    def run(self, label, seed, options):
        try:
            with connect(self.url, label=label, connect_timeout=20) as runner:
                self.compile(runner, seed, options)
            self.outcomes[label] = Outcome(OutcomeKind.OK, "m", 0, scores={"seed": seed})
        except ShmbridgeError as error:
            self.outcomes[label] = Outcome(OutcomeKind.EXIT_STATUS, "m", 1, stderr=str(error))

    def outcome(self, label, timeout):
        return self.outcomes.get(label)

    def end(self, label):
        self.ended.append(label)

    def close(self):
        self.closed = True
        for thread in self.threads:
            thread.join(20)
