"""ONNX's own test of each operator, through `shmbridge compile` and aot://.

    python tests/compile/node_cases.py [-j JOBS] [WORD ...]

Only those whose names contain one of the WORDs. Prints what became of each and counts: right,
refused (by compile, or when it runs), wrong, died (in compile or when it runs).
"""

import argparse
import collections
import contextlib
import io
import multiprocessing
import os
import signal
import sys
import tempfile
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

SECONDS = 300  # for one case
GENERATED = "-O1"  # tests the code, not its speed


def judge(case, folder):
    """right, refused or wrong, and why."""
    import numpy as np
    import onnx
    from click.testing import CliRunner

    import shmbridge
    from shmbridge._values.agreement import difference
    from shmbridge.cli import main
    from shmbridge.errors import ShmbridgeError

    os.chdir(folder)
    onnx.save(case.model, "m.onnx")
    found = CliRunner().invoke(main, ["compile", "m.onnx", "-o", "m.so"])
    if found.exit_code:
        return "refused", found.output or repr(found.exception)
    for inputs, outputs in case.data_sets:
        with shmbridge.connect(f"aot://{folder}/m.so") as runner:
            names = (port.name for port in case.model.graph.input)
            try:
                runner.evaluate(dict(zip(names, map(np.asarray, inputs), strict=True)))
            except ShmbridgeError as error:
                return "refused", str(error)
            for port, right in zip(case.model.graph.output, outputs, strict=True):
                if isinstance(right, onnx.TensorProto):  # of no dtype of NumPy
                    right = onnx.numpy_helper.to_array(right)
                value = np.asarray(runner.advice[port.name])
                if value.shape != right.shape or not difference(right, value).within:
                    return "wrong", f"{port.name}: {value} for {right}"
    return "right", found.output


def verdict(case):
    """The case's name, its verdict, and why; in a process of its own, which may die."""
    read, write = os.pipe()
    with tempfile.TemporaryDirectory(prefix="node-case-") as folder:
        child = os.fork()
        if not child:
            signal.alarm(SECONDS)
            with open(os.path.join(folder, "said"), "w") as said:
                os.dup2(said.fileno(), 2)
            with contextlib.redirect_stdout(io.StringIO()):
                try:
                    word, why = judge(case, folder)
                except BaseException as error:
                    word, why = "wrong", repr(error)
            os.write(write, f"{word}\0{why}".encode()[:4096])
            os._exit(0)
        os.close(write)
        with open(read, "rb") as pipe:
            found = pipe.read().decode(errors="replace")
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    word, _, why = found.partition("\0")
    if status or not word:
        word, why = "died", signal.Signals(-status).name if status < 0 else f"status {status}"
    return case.name, word, why


def cases(words):
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's, while onnx makes its cases
        loaded = load_model_tests(kind="node")
    return [c for c in loaded if not words or any(word in c.name for word in words)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-j", type=int, default=os.cpu_count(), dest="jobs")
    parser.add_argument("words", nargs="*")
    arguments = parser.parse_args()
    os.environ["CFLAGS"] = GENERATED
    from support.compiling import quickly

    counts = collections.Counter()
    with quickly(), multiprocessing.Pool(arguments.jobs) as pool:
        for name, word, why in pool.imap_unordered(verdict, cases(arguments.words)):
            counts[word] += 1
            print(word, name, " ".join(why.split())[:300], flush=True)
    print(", ".join(f"{counts[word]} {word}" for word in ("right", "refused", "wrong", "died")))


if __name__ == "__main__":
    main()
