"""ONNX's own test of each operator, through `shmbridge compile` and aot://.

    python tests/compile/node_cases.py [WORD ...]

Only those whose names contain one of the WORDs. Prints what became of each and counts: right,
refused (by compile, or when it runs), wrong, died (in compile or when it runs).
"""

import collections
import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
RIGHT, REFUSED, WRONG, DIED = VERDICTS = ("right", "refused", "wrong", "died")
FIRST = 10  # exit status: lower ones are Python's


def judge(case):
    """Ends this process, with the verdict's place as its status."""
    import numpy as np
    import onnx
    from click.testing import CliRunner

    import shmbridge
    from shmbridge._compile.check import difference
    from shmbridge.cli import main

    signal.alarm(300)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        onnx.save(case.model, "m.onnx")
        verdict = RIGHT
        if CliRunner().invoke(main, ["compile", "m.onnx", "-o", "m.so"]).exit_code:
            verdict = REFUSED
        for inputs, outputs in case.data_sets if verdict == RIGHT else ():
            with shmbridge.connect(f"aot://{folder}/m.so") as runner:
                names = (port.name for port in case.model.graph.input)
                try:
                    runner.evaluate(dict(zip(names, map(np.asarray, inputs), strict=True)))
                except shmbridge.ShmbridgeError:
                    verdict = REFUSED
                    break
                for port, right in zip(case.model.graph.output, outputs, strict=True):
                    if isinstance(right, onnx.TensorProto):  # of no dtype of NumPy
                        right = onnx.numpy_helper.to_array(right)
                    value = np.asarray(runner.advice[port.name])
                    if value.shape != right.shape or not difference(right, value).within:
                        verdict = WRONG
    os._exit(FIRST + VERDICTS.index(verdict))


def main(words):
    from onnx.backend.test.loader import load_model_tests
    from support.compiling import quickly

    os.environ["CFLAGS"] = "-O1"  # tests the code, not its speed
    cases = [
        c for c in load_model_tests(kind="node") if not words or any(w in c.name for w in words)
    ]
    start, counts = multiprocessing.get_context("fork").Process, collections.Counter()

    def verdict(case):
        child = start(target=judge, args=[case])
        child.start()
        child.join()
        found = VERDICTS[child.exitcode - FIRST] if child.exitcode >= FIRST else DIED
        counts[found] += 1
        print(found, case.name, flush=True)

    with quickly(), ThreadPoolExecutor(os.cpu_count()) as pool:
        collections.deque(pool.map(verdict, cases), 0)
    print(", ".join(f"{counts[word]} {word}" for word in VERDICTS))


if __name__ == "__main__":
    main(sys.argv[1:])
