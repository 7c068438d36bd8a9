"""Commands in processes of their own."""

import os
import signal
import subprocess
import sys
import threading

import numpy as np

import shmbridge

SHMBRIDGE = [sys.executable, "-m", "shmbridge.cli"]

MODELS = """
import time
import numpy as np

def total(request):
    return float(np.sum(request["x"]))

def totals(batch):
    return batch["x"].sum(axis=1)

def broken(request):
    raise ValueError("no advice for you")

def repeats(request):
    raise ValueError(request["x"])

def large(request):
    return np.zeros(1 << 20)

def slow(request):
    open("asked", "w")
    time.sleep(1)
    return 7

def stuck(request):
    open("asked", "w")
    while True:  # in steps, as a wait may miss a signal that comes as it begins
        time.sleep(0.05)

"""


def run(*arguments, cwd=None, **environment):
    command = [*SHMBRIDGE, *map(str, arguments)]
    env = {**os.environ, **environment}
    return subprocess.run(
        command, cwd=cwd or "/", env=env, text=True, capture_output=True, check=False, timeout=120
    )


def refused(status, *arguments, cwd=None):
    """What the command says on stderr; fails unless it ends with that status and without a
    traceback."""
    done = run(*arguments, cwd=cwd)
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    said = done.stderr.strip()
    assert said.splitlines()[-1].startswith("Error: ")
    assert status != 1 or len(said.splitlines()) == 1
    return said


class Command(subprocess.Popen[str]):
    """A command, while it runs; it has said `ready`."""

    def __init__(self, ready, *arguments, cwd):
        super().__init__(
            [*SHMBRIDGE, *map(str, arguments)],
            cwd=cwd,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.said = ""
        assert self.stdout
        while ready not in self.said:
            line = self.stdout.readline()
            assert line, self.said
            self.said += line

    def end(self, number=signal.SIGTERM):
        """Ends it; returns all that it has said. Fails unless it ends with status 0."""
        if self.poll() is None:
            self.send_signal(number)
        self.said += self.communicate(timeout=60)[0]
        assert self.returncode == 0, self.said
        return self.said


class Serving(Command):
    """`shmbridge serve`, while it runs."""

    def __init__(self, *arguments, cwd):
        small = ("--channels", "4", "--request-bytes", "64K")
        # "Python" is in the last line of the introduction.
        super().__init__("Python", "serve", *small, *arguments, cwd=cwd)


def evaluate(name, **features):
    with shmbridge.connect(name) as runner:
        return runner.evaluate(features)


def together(name, questions):
    """The advice for several questions, asked by a runner each at about the same time."""
    answers = [None] * len(questions)
    barrier = threading.Barrier(len(questions))

    def ask(i):
        with shmbridge.connect(name) as runner:
            barrier.wait()
            answers[i] = runner.evaluate(questions[i])

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(questions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


X = np.array([1, 2, 3], np.float32)
