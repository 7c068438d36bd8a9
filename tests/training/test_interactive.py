"""ml-compiler-opt's cases of its interactive environment (compiler_opt/rl/env_test.py), with a
CompilerEnv: what it expects of a clang that speaks, stops speaking, or never does. Its plain
session, without a model, is Task.run without a URL: test_task.py."""

import pytest

from shmbridge.errors import DeadlineError

pytest.importorskip("gymnasium")
from shmbridge.envs import CompilerEnv

CLANG = """
import json, os, sys, time
import numpy as np

base = sys.argv[1]
spec = {"port": 0, "shape": [1], "type": "int64_t"}
header = {"features": [{"name": "times_called", **spec}],
    "advice": {"name": "inlining_decision", **spec}}

def begin():
    global out, answers
    out, answers = open(base + ".out", "wb", buffering=0), open(base + ".in", "rb", buffering=0)
    out.write(json.dumps(header).encode() + b"\\n")

def say(i):
    record = np.int64(i).tobytes() + b"\\n"
    out.write(json.dumps({"context": f"context_{i}"}).encode() + b"\\n")
    out.write(b'{"observation":0}\\n' + record)

def ask(i):
    say(i)
    assert len(answers.read(8)) == 8
"""


@pytest.fixture
def clang(python, tmp_path):
    """clang(code): a program that speaks LLVM's interactive channel."""
    return lambda code: python(CLANG + code, tmp_path / "channel")


@pytest.fixture
def env(tmp_path, monkeypatch):
    """env(timeout): an environment at that channel."""
    monkeypatch.setattr("shmbridge.hosts.llvm.LINGER", 0)
    made = []

    def make(timeout):
        made.append(CompilerEnv(f"llvm://{tmp_path}/channel", actions=2, timeout=timeout))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_compiler_at_a_pipe_that_leaves_ends_its_episode(env, clang):
    trainer = env(timeout=None)
    for _ in range(2):
        compiler = clang("begin(); ask(0); ask(1)")
        trainer.reset()
        assert trainer.step(1)[0]["times_called"].tolist() == [1]
        _, _, terminated, truncated, info = trainer.step(1)
        assert terminated and not truncated and "error" not in info
        assert compiler.wait(30) == 0


@pytest.mark.parametrize(
    "code",
    [
        "time.sleep(1000)",
        "open(base + '.in', 'rb'); time.sleep(1000)",
        "begin(); time.sleep(1000)",
        'begin(); out.write(b\'{"context":"hello"}\\n{"observation":0}\\n\\1\\0\'); '
        "time.sleep(1000)",
    ],
    ids=["never opens", "opens the answers alone", "says its header alone", "says half a question"],
)
def test_a_compiler_that_asks_nothing_is_a_deadline_and_the_next_one_is_taken(env, clang, code):
    trainer = env(timeout=1)
    mute = clang(code)
    with pytest.raises(DeadlineError):
        trainer.reset()
    mute.kill()
    mute.wait()
    trainer._stepping.timeout = 60
    clang("begin(); ask(5)")
    assert trainer.reset()[0]["times_called"].tolist() == [5]


@pytest.mark.parametrize("behind", ["time.sleep(1000)", "out.write(b'{\"obs'); time.sleep(1000)"])
def test_a_compiler_that_stops_talking_back_is_a_truncated_episode(env, clang, behind):
    trainer = env(timeout=60)
    clang(f"begin(); ask(7); {behind}")
    observation, _ = trainer.reset()
    assert observation["times_called"].tolist() == [7]
    trainer._stepping.timeout = 0.5
    _, _, terminated, truncated, info = trainer.step(1)
    assert truncated and not terminated and "asked nothing" in info["error"]
