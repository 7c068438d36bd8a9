"""The model's side in Python. Prints its bridge's name.

python_host.py WAIT CORE busy|idle SLOT_BYTES CHANNELS [MODELS|ANSWER]

The model takes the array, reads nothing, and answers 1. MODELS: a folder of dense.py's, one for each
length. ANSWER: an expression, with numpy as np, that the model returns. busy: another thread
computes.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

import shmbridge

wait, core, busy, room, channels, *more = sys.argv[1:]


def compute() -> None:
    while True:
        sum(range(1000))


def serve(host: shmbridge.Host) -> None:
    for request in host:
        request["features"]
        request.reply(1)


def serve_dense(host: shmbridge.Host) -> None:
    from dense import load

    layers = load(more[0])
    print(host.name, flush=True)
    for request in host:
        features = request["features"]
        request.reply(int(layers[features.size].run(None, {"features": features})[0][0]))


def serve_answer(host: shmbridge.Host) -> None:
    import numpy as np

    answer = eval(more[0], {"np": np})
    print(host.name, flush=True)
    host.serve(lambda _: answer)


name = f"bench-{os.getpid()}"
with shmbridge.Host(name, channels=int(channels), request_bytes=int(room), wait=wait) as host:
    signal.signal(signal.SIGTERM, lambda *_: host.close())  # which ends the loop
    os.sched_setaffinity(0, {int(core)})  # only now: a host that may use one CPU only does not spin
    if busy == "busy":
        threading.Thread(target=compute, daemon=True).start()
    if more:
        (serve_dense if os.path.isdir(more[0]) else serve_answer)(host)
    else:
        print(host.name, flush=True)
        serve(host)
