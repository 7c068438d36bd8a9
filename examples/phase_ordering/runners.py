"""How long opt takes for one module, by the policy's URL: python runners.py results/policy.onnx
build/programs/test/brotli-cluster.bc

Needs policy.so next to policy.onnx, and `pip install 'shmbridge[grpc]'`. Prints JSON: seconds of
each run, by URL scheme. "none" is -Oz without a question. The URLs alternate, so that other load
affects all of them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from search import make_task


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("policy", type=Path)
    parser.add_argument("module", type=Path)
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    policy = options.policy.absolute()
    words = [
        {"{module}": str(options.module), "{output}": os.devnull}.get(w, w)
        for w in make_task().words
        if w != "{flags}"
    ]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as hosts:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"grpc://127.0.0.1:{free.getsockname()[1]}"
        name = f"runners-{os.getpid()}"
        for host in (name, f"pipe://{folder}/pipe", address):
            serve(hosts, host, "serve", host, "--onnx", str(policy))
        serve(hosts, f"{name}-far", "relay", f"{name}-far", address)
        urls = {
            "none": None,
            "aot": f"aot://{policy.with_suffix('.so')}",
            "onnx": f"onnx://{policy}",
            "shm": f"shm://{name}",
            "pipe": f"pipe://{folder}/pipe?connect_timeout=10",
            "grpc": f"shm://{name}-far",
        }
        seconds = {way: [] for way in urls}
        for _ in range(options.repeats):
            for way, url in urls.items():
                seconds[way].append(timed(words, url))
    print(json.dumps(seconds))


def serve(hosts: contextlib.ExitStack, name: str, *words: str) -> None:
    """Starts a host that stops at the end of the block."""
    subprocess.run(["shmbridge", *words, "--background"], check=True, stdout=subprocess.DEVNULL)
    hosts.callback(subprocess.run, ["shmbridge", "stop", name], stdout=subprocess.DEVNULL)


def timed(words: list[str], url: str | None) -> float:
    """Seconds of one run of opt, which must not fall back to -Oz."""
    began = time.perf_counter()
    environment = {**os.environ, **({"SHMBRIDGE_URL": url} if url else {})}
    done = subprocess.run(words, env=environment, check=True, capture_output=True, text=True)
    if "warning" in done.stderr:
        raise SystemExit(f"expected advice of {url}, found: {done.stderr}")
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
