"""cpp/environment.cpp in Python: a toy compiler's phase ordering as an environment, for trainer.py
and the model that it trains.

python environment.py URL [PROGRAMS [SEED]]
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import shmbridge
from shmbridge.rl import Action, Agent, Environment, drive

NAMES = ["inline", "fold", "remove-dead", "stop"]
INLINE, FOLD, REMOVE_DEAD, STOP = range(4)


class PassOrder(Environment):
    """Chooses the next pass, until "stop"."""

    def __init__(self) -> None:
        self.passes: list[str] = []
        self.warned = False

    def make(self, number: int) -> None:
        """The parts of the next episode's program that passes affect."""
        self.instructions = 40
        self.calls, self.constants, self.dead = (bool(number & bit) for bit in (1, 2, 4))

    def reset(self) -> dict[str, Any]:
        self.passes = []
        return self.observe()

    def step(self, action: Action) -> dict[str, Any] | None:
        index = action.index if INLINE <= action.index < STOP else STOP
        before = self.instructions
        if index == INLINE and self.calls:
            self.instructions, self.constants, self.calls = before + 4, True, False
        if index == FOLD and self.constants:
            self.dead, self.constants = True, False
        if index == REMOVE_DEAD and self.dead:
            self.instructions, self.dead = before - 8, False
        self.passes.append(NAMES[index])
        if index == STOP:
            self.set_done()
            return None
        self.add_reward(before - self.instructions - 0.5)  # a pass takes time
        return self.observe()

    def on_error(self, error: shmbridge.ShmbridgeError) -> int:
        if not self.warned:
            print(f"warning: the heuristic decides: {error}", file=sys.stderr)
        self.warned = True
        return REMOVE_DEAD if self.dead else STOP

    def observe(self) -> dict[str, Any]:
        """state: float32[8], 1 at the number whose bits say whether there are calls, constants and
        dead instructions."""
        state = np.zeros(8, np.float32)
        state[self.calls + 2 * self.constants + 4 * self.dead] = 1
        return {"state": state}


def main(url: str, programs: str = "8", seed: str | None = None) -> None:
    """Prints the passes for each program."""
    order = PassOrder()
    with shmbridge.connect(url) as runner:
        agent = Agent(runner) if seed is None else Agent(runner, choice="logits", seed=int(seed))
        for i in range(int(programs)):
            order.make(i)
            drive(order, agent, 20)
            print(
                f"{i}: {' '.join(order.passes)} ({order.instructions} instructions, reward {agent.reward:g})"
            )


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 4:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except shmbridge.ShmbridgeError as error:
        sys.exit(str(error))
