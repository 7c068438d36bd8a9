"""Ctrl-C at any step of a Python runner's question: the next one gets its own answer."""

import sys
import threading

import numpy as np
import pytest
from combinations import RUNNERS

from shmbridge import Host, Runner, connect

HANGS = 20  # seconds


class Interrupt:
    """Raises KeyboardInterrupt before the step-th bytecode of what evaluate runs in Python."""

    METHODS = (Runner.evaluate, Runner._fill, Runner._copy)

    def __init__(self, step):
        self.left = step

    def trace(self, frame, event, arg):
        if frame.f_code not in [method.__code__ for method in self.METHODS]:
            return None
        frame.f_trace_opcodes = True
        self.left -= event == "opcode"
        if self.left == 0:
            raise KeyboardInterrupt
        return self.trace

    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(self.trace)

    def __exit__(self, *_):
        sys.settrace(self.before)


@pytest.mark.parametrize("kind", [RUNNERS["shm"], RUNNERS["pipe"]], ids=["shm", "pipe"])
def test_a_question_that_was_interrupted_anywhere_leaves_no_trace(kind, new_name, tmp_path):
    url = kind.url.format(name=new_name(), folder=tmp_path, serdes=next(iter(kind.cells)))
    with Host(url, **kind.host) as host:
        thread = threading.Thread(target=host.serve, args=(dict,))
        thread.start()
        with connect(url, deadline=HANGS) as runner:
            for step in range(1, 1000):
                try:
                    with Interrupt(step):
                        runner.evaluate({"x": np.array([-step]), "text": "goes by _fill"})
                    break
                except KeyboardInterrupt:
                    pass
                assert runner.evaluate({"x": np.array([step])}).tolist() == [step], (
                    f"interrupted at step {step}"
                )
        host.close()
        thread.join(HANGS)
    assert 20 < step < 999 and not thread.is_alive()
