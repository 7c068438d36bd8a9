"""The model's side in Python. Prints its bridge's name.

python_host.py WAIT CORE busy|idle SLOT_BYTES [MODEL.onnx]
The model takes the array and answers 1; with MODEL.onnx it runs that on the array. busy: another thread computes.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

import shmbridge

wait, core, busy, room, *model = sys.argv[1:]


def compute() -> None:
    while True:
        sum(range(1000))


def serve(host: shmbridge.Host) -> None:
    for request in host:
        request["features"]
        request.reply(1)


def serve_onnx(host: shmbridge.Host) -> None:
    from dense import session

    run = session(model[0]).run
    for request in host:
        request.reply(float(run(None, {"features": request["features"]})[0][0]))


def stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


signal.signal(signal.SIGTERM, stop)
with shmbridge.Host(f"bench-{os.getpid()}", channels=1, request_bytes=int(room), wait=wait) as host:
    os.sched_setaffinity(0, {int(core)})  # only now: a host that may use one CPU only does not spin
    if busy == "busy":
        threading.Thread(target=compute, daemon=True).start()
    print(host.name, flush=True)
    try:
        serve_onnx(host) if model else serve(host)
    except KeyboardInterrupt:
        pass
