"""Questions in threads, and of clients of ML-Compiler-Bridge."""

from contextlib import contextmanager

import numpy as np

from shmbridge import connect
from support.processes import until


def evaluating(in_thread, host, features, **options):
    """The runner's evaluate in a thread, on a connection of its own."""

    def ask():
        with connect(host.url) as runner:
            return runner.evaluate(features, **options)

    return in_thread(ask)


def attached(in_thread, host, url=None, **options):
    """A runner of a host without a loop."""
    before, connecting = host.runners, in_thread(lambda: connect(url or host.url, **options))
    until(lambda: host.receive(timeout=0.01) is None and host.runners > before)
    return connecting.result()


def in_segment(host, array):
    """Is the array in the host's mapping?"""
    return np.may_share_memory(array, np.frombuffer(host._memory, np.uint8))


# What a client of ML-Compiler-Bridge asks: x=11.
FIRST = (
    b'{"features":[{"name":"x","type":"int32_t","port":6020,"shape":[1]}]}\n'
    + bytes([11, 0, 0, 0])
    + b"\n"
)


@contextmanager
def their_client(path):
    """ask(question): the length of its reply, with flags, and its body."""
    with open(f"{path}.in", "rb", 0) as come, open(f"{path}.out", "wb", 0) as go:

        def ask(question):
            go.write(len(question).to_bytes(8, "little") + question)
            length = int.from_bytes(come.read(8), "little")
            return length, come.read(length & (1 << 62) - 1)

        yield ask
