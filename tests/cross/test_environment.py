"""The environment of examples/ in C, C++ and Python: equal actions, equal requests; trained over
shm://, then run from a file."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.processes import printed

EXAMPLES = Path(__file__).parents[2] / "examples"
BEST = [0, 2.5, 7, 9.5, 7.5, 10, 14.5, 17]  # of each program, by hand
LOGITS = np.array([0.3, 0.1, 0.2, -0.5], np.float32)
LANGUAGES = ["c", "cpp", "python"]


@pytest.fixture(scope="session")
def environment(c_program):
    """environment(language): the command of the example in that language."""
    built = {}

    def command(language):
        if language == "python":
            return [sys.executable, "-P", EXAMPLES / "python/environment.py"]
        if language not in built:
            built[language] = c_program(EXAMPLES / language / f"environment.{language}")
        return [built[language]]

    return command


def run(command, *args):
    """What it prints: (passes, reward) of each program; and its warnings."""
    done = printed([*command, *map(str, args)])
    assert done.returncode == 0, done.stderr
    lines = [
        line.partition(": ")[2].removesuffix(")").partition(" (")
        for line in done.stdout.splitlines()
    ]
    return [(passes, float(rest.rpartition(" ")[2])) for passes, _, rest in lines], done.stderr


def test_equal_seeds_give_equal_actions_in_every_language(environment, serve, name):
    with serve(lambda request: LOGITS):
        c, cpp, python = (
            [run(environment(language), f"shm://{name}", 8, seed)[0] for seed in (0, 1, 2**63)]
            for language in LANGUAGES
        )
    assert c == cpp == python
    assert c[0] != c[1] != c[2]


def test_every_language_sends_the_same_requests(environment, serve, name):
    seen = {}
    for language in LANGUAGES:
        asked = seen[language] = []

        def trainer(request, asked=asked):
            asked.append(
                json.dumps(
                    {key: [str(value.dtype), value.tolist()] for key, value in request.items()}
                )
            )
            number = len(asked) % 4
            return {"learner": number} if "step" not in request else number

        with serve(trainer):
            run(environment(language), f"shm://{name}", 8)
    assert seen["c"] == seen["cpp"] == seen["python"]
    assert any('"done": ["bool", true]' in request for request in seen["c"])


@pytest.fixture(scope="session")
def policy(environment, new_name, tmp_path_factory):
    """What examples/python/trainer.py has learnt from the C++ environment, as an ONNX model."""
    pytest.importorskip("onnx", reason="the trainer writes what it has learnt with it")
    path, name = tmp_path_factory.mktemp("policy") / "policy.onnx", new_name()
    trainer = subprocess.Popen(
        [sys.executable, "-P", EXAMPLES / "python/trainer.py", f"shm://{name}", path],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        rewards = [
            reward
            for _, reward in run(environment("cpp"), f"shm://{name}?connect_timeout=30", 800)[0]
        ]
        out, _ = trainer.communicate(timeout=60)
    finally:
        trainer.kill()
        trainer.wait()
    assert trainer.returncode == 0 and "800 episodes" in out
    assert np.mean(rewards[-80:]) > np.mean(rewards[:80]) + 2
    return path


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_was_learnt_over_shm_runs_from_a_file(environment, policy, language):
    pytest.importorskip("onnxruntime", reason="onnx:// loads its library")
    import onnxruntime

    (library,) = Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*")
    found, warnings = run(environment(language), f"onnx://{policy}?library={library}")
    assert [reward for _, reward in found] == BEST and not warnings


def test_what_was_learnt_is_the_same_behind_every_url(environment, policy, serve, name):
    numpy_helper = pytest.importorskip("onnx.numpy_helper")
    import onnx

    q = numpy_helper.to_array(onnx.load(policy).graph.initializer[0])
    with serve(lambda request: request["state"] @ q):
        served = [run(environment(language), f"shm://{name}", 8)[0] for language in LANGUAGES]
    assert served == [served[0]] * 3 and [reward for _, reward in served[0]] == BEST


KILLED = """
import os, signal, sys
from shmbridge.envs import CompilerEnv

env = CompilerEnv(sys.argv[1])
print("up", flush=True)
env.reset()
env.step(0)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_killed_trainer_leaves_the_heuristic(environment, python, name, language):
    trainer = python(KILLED, name)
    assert trainer.line() == "up"
    found, warnings = run(environment(language), f"shm://{name}", 5)
    assert found[0][0] == "inline stop" and found[4] == ("remove-dead stop", 7.5)
    assert "the heuristic decides" in warnings and "died" in warnings
    from shmbridge import Host

    Host(name).close()  # takes the dead one's files over
