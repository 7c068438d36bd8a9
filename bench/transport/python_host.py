"""The model's side in Python. Prints its bridge's name.

python_host.py WAIT CORE busy|idle SLOT_BYTES CHANNELS [ANSWER]

The model takes the array, reads nothing, and answers 1. ANSWER: an expression, with numpy as np,
that the model returns. busy: another thread computes.
"""

import os
import signal
import sys
import threading

import numpy as np

import shmbridge

wait, core, busy, room, channels, *more = sys.argv[1:]


def compute() -> None:
    while True:
        sum(range(1000))


name = f"bench-{os.getpid()}"
with shmbridge.Host(name, channels=int(channels), request_bytes=int(room), wait=wait) as host:
    signal.signal(signal.SIGTERM, lambda *_: host.close())  # which ends the loop
    os.sched_setaffinity(0, {int(core)})  # only now: a host that may use one CPU only does not spin
    if busy == "busy":
        threading.Thread(target=compute, daemon=True).start()
    print(host.name, flush=True)
    if more:
        answer = eval(more[0], {"np": np})
        host.serve(lambda _: answer)
    for request in host:
        request["features"]
        request.reply(1)
