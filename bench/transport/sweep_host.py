"""The host of sweep.py. Prints the URL that its compiler
opens.

sweep_host.py CORE URL         a shmbridge host
sweep_host.py CORE URL relay   a gRPC host, and `shmbridge relay` from URL to it
"""

import os
import signal
import sys

from bench.program import SHMBRIDGE, python, started

ROOM = 1 << 19  # bytes of the longest request: 50 000 floats, which JSON makes doubles


def serve(core: int, url: str) -> None:
    import shmbridge
    from bench.transport.sweep_models import answer

    with shmbridge.Host(url, request_bytes=ROOM) as host:
        signal.signal(signal.SIGTERM, lambda *_: host.close())  # which ends the loop
        os.sched_setaffinity(0, {core})  # only now: a host that may use one CPU only does not spin
        print(host.url, flush=True)
        for request in host:
            request.reply(answer(request))


def relay(core: int, url: str) -> None:
    host = python("sweep_host", core, "grpc://127.0.0.1:0")
    with started(*host) as (_, target), started(SHMBRIDGE, "relay", url, target) as (between, _):
        os.sched_setaffinity(between.pid, {core})
        signal.signal(signal.SIGTERM, lambda *_: None)  # the others of this group get it too
        print(url, flush=True)
        between.wait()


if __name__ == "__main__":
    core, url, *how = sys.argv[1:]
    (relay if how == ["relay"] else serve)(int(core), url)
