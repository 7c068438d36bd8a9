"""examples/loops: a plugin for clang-22 that asks two agents about each inmost loop."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from shmbridge import Host
from shmbridge.training import Corpus, Task, Workers
from shmbridge.training.scores import text_size

pytest.importorskip("pettingzoo")

from gymnasium.spaces import MultiDiscrete

from shmbridge.envs.pettingzoo import CompilerAECEnv

TOOLS = ("clang-22", "llvm-config-22", "valgrind", "cmake")
MISSING = [tool for tool in TOOLS if not shutil.which(tool)]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"no {', '.join(MISSING)}")


@pytest.fixture
def example(examples, run_example):
    """What `python run.py` has printed, and its folder, with the plugin."""
    headers = subprocess.run(["llvm-config-22", "--includedir"], capture_output=True, text=True)
    if not Path(headers.stdout.strip(), "llvm/Passes/PassBuilder.h").exists():
        pytest.skip("no headers of LLVM 22")
    return run_example("loops"), examples / "loops"


def test_agents_learn_of_loops_and_the_compiler_does_what_they_say(example, tmp_path):
    printed, folder = example
    results = json.loads((folder / "results/results.json").read_text())
    assert re.search(r"^learnt, one compilation of each +[+-]", printed, re.M)
    assert results["advice"]["vectorized done"] > 0
    assert all(row["best of random"] <= 1 and row["-O3"] > 0 for row in results["held out"])

    def compiled(kernel, model=None, plugin=True):
        """The object's bytes, and stderr; model: a function that advises."""
        use = [f"-fpass-plugin={folder}/build/shmbridge-loops.so"] if plugin else []
        output = tmp_path / "kernel.o"
        command = ["clang-22", "-O3", "-ffast-math", *use, "-Rpass=loop-(distribute|vectorize)"]
        command += ["-c", folder / f"kernels/{kernel}.c", "-o", output]
        with Host("loops-test") as host, host.start(model or (lambda request: 0)):
            env = {**os.environ, **({"SHMBRIDGE_URL": host.url} if model else {})}
            done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
        return output.read_bytes(), done.stderr

    asked = []

    def advise(request):
        asked.append({name: request[name] for name in request})
        return 1 if request["agent"] == "distribute" else np.array([4, 2, 1])

    said = compiled("split_third", advise)[1]
    assert "distributed loop" in said and "vectorization width: 4, interleaved count: 2" in said

    # The dependence graph: x[i] = 0.5 * x[i - 4] + y[i].
    asked.clear()
    compiled("distance4", advise)
    loop = asked[0]
    number = {opcode: i for i, opcode in enumerate(loop["opcodes"]) if opcode != "load"}
    loads = [i for i, opcode in enumerate(loop["opcodes"]) if opcode == "load"]
    assert [request["agent"] for request in asked] == ["distribute", "vectorize"]
    assert any(number["fmul"] in loop["uses"][load] for load in loads)
    assert any(number["store"] in loop["memory"][load] for load in loads)
    assert set(loop["strides"]) == set(loop["bytes"]) == {4} and loop["safe_bits"] == 128

    # The same agents as an environment of PettingZoo: they take turns, and share what the
    # compilation is worth.
    task = Task(
        f"clang-22 -O3 -fpass-plugin={folder}/build/shmbridge-loops.so -c {{module}} -o {{output}}",
        scores={"text": text_size},
    )
    spaces = {"distribute": 2, "vectorize": MultiDiscrete([65, 65, 65])}
    modules = Corpus.from_sources(folder / "kernels/jacobi.c").sampler(seed=0)
    env = CompilerAECEnv(
        "shm://turns", agents=[*spaces], actions=spaces, workers=Workers(task, modules)
    )
    env.reset(seed=1)
    turns, worth = [], {}
    for agent in env.agent_iter():
        _, reward, over, _, _ = env.last()
        turns += [agent] * (not over)
        worth |= {agent: reward} if over else {}
        env.step(None if over else 0 if agent == "distribute" else np.array([8, 4, 1]))
    env.close()
    assert turns == ["distribute", "vectorize"] * (len(turns) // 2) and len(turns) >= 2
    assert worth["distribute"] == worth["vectorize"] < 0, "wide code is larger"

    # Without a model, and with advice that makes no sense, the compiler is as it always was.
    plain = compiled("triad", plugin=False)[0]
    assert compiled("triad") == (plain, compiled("triad")[1])
    assert "2 of 2 decisions are LLVM's own: no URL" in compiled("triad")[1]
    wrong, said = compiled("triad", lambda request: np.array([3, 1, 1]))
    assert wrong == plain and "2 of 2 decisions are LLVM's own: expected" in said
