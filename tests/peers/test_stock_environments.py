"""An unmodified clang is an environment: its compilation is an episode."""

import contextlib
import subprocess

import numpy as np
import pytest
from support.stock import SHMBRIDGE, SOURCES, needs

from shmbridge.envs import CompilerEnv, CompilerVectorEnv

BOUND = 30
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_is_left")]


@pytest.fixture
def clang(name, tmp_path):
    """clang(decision, out): starts clang-22 below `shmbridge run`."""
    needs("clang-22")
    started = []

    def start(decision, out="out.o"):
        command = ["clang-22", "-O2", "-c", SOURCES / "numbers.c", "-o", tmp_path / out]
        run = [SHMBRIDGE, "run", "--llvm", decision, "--connect", name, "--", *command]
        started.append(subprocess.Popen(run, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.communicate()


@pytest.mark.parametrize("decision", ["inline", "evict"])
def test_a_compilation_is_an_episode(name, clang, tmp_path, decision):
    objects = []
    with contextlib.closing(CompilerEnv(name, timeout=BOUND)) as env:
        for _ in range(2):
            compiling = clang(decision)
            observation, info = env.reset()
            assert all(isinstance(each, np.ndarray) for each in observation.values())
            steps, over = 0, False
            while not over:
                action = int(observation["mask"].argmax()) if "mask" in observation else 0
                observation, reward, over, truncated, info = env.step(action)
                assert reward == 0 and not truncated, info
                steps += 1
            assert compiling.wait(BOUND) == 0 and compiling.stderr.read() == ""
            objects.append((steps, (tmp_path / "out.o").read_bytes()))
    assert objects[0] == objects[1] and objects[0][0] > 3


def test_two_compilations_at_once(name, clang):
    with contextlib.closing(CompilerVectorEnv(name, 2, timeout=BOUND)) as env:
        compiling = [clang("inline", f"{i}.o") for i in range(2)]
        env.reset()
        over = np.zeros(2, bool)
        while not over.all():
            for each, done in zip(range(2), over, strict=True):
                if done and len(compiling) < 4:
                    compiling.append(clang("inline", f"{each + 2}.o"))
            *_, terminations, truncations, infos = env.step(np.zeros(2, np.int64))
            assert not truncations.any(), infos
            over |= terminations
        env.close()
        assert [each.wait(BOUND) for each in compiling] == [0] * len(compiling)
