"""Compilers that drive environments in a thread."""

import pytest

from shmbridge import connect
from shmbridge.rl import Agent, drive


@pytest.fixture
def walk(in_thread, name):
    """walk(environment, episodes): drives them in a thread, as a compiler; the thread's result:
    actions of each, or the error that ended it."""

    def go(environment, episodes=1, max_steps=50, agents=("",)):
        def episode(runner):
            try:
                drive(environment, [Agent(runner, agent) for agent in agents], max_steps)
                return list(getattr(environment, "actions", getattr(environment, "log", ())))
            except Exception as error:
                return error

        def compiler():
            with connect(name, connect_timeout=20) as runner:
                return [episode(runner) for _ in range(episodes)]

        return in_thread(compiler)

    return go
