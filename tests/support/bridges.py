"""Bridges below /dev/shm."""

from shmbridge._bridge import names

DIES = """
    import os, signal, sys, shmbridge
    host = shmbridge.Host(sys.argv[1])
    print("made", flush=True)
    sys.stdin.readline()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def shm_path(name):
    return names.SHM / f"shmb.{name}"
