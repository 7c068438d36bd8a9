"""What replays a compilation, for compilation.py, waiting.py and many_cores.py."""

import gzip
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.program import busy_seconds, cpu_of, started

GAPS = Path(__file__).with_name("gaps.txt.gz")
PROGRAMS = (["compilation", "compilation_ask"], ["compilation_host"])


@dataclass
class Way:
    """A way to the model. `servers` are processes that answer all compilers; `each` starts one for
    each compiler. "{base}" is a path for that compiler, "{line}" what its server printed."""

    name: str
    program: Path
    url: str | Sequence[str]  # several: the compilers take turns
    servers: Sequence[int] = ()
    each: Sequence[object] = ()
    together: int = 1  # questions in flight


def recorded_gaps(folder: Path) -> str:
    """A file with the recorded gaps, for the compiler in C."""
    file = folder / "gaps.txt"
    file.write_bytes(gzip.decompress(GAPS.read_bytes()))
    return str(file)


def cell(way: Way, gaps: str, steps: str, jobs: int, first: int, count: int) -> dict[str, Any]:
    """Runs this many compilers at once; us."""
    with ExitStack() as stack:
        compilers, servers = [], list(way.servers)
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        for i in range(jobs):
            base, line = f"{folder}/{i}", ""
            if way.each:
                words = (str(word).replace("{base}", base) for word in way.each)
                server, line = stack.enter_context(started(*words))
                servers.append(server.pid)
            url = way.url if isinstance(way.url, str) else way.url[i % len(way.url)]
            url = url.replace("{base}", base).replace("{line}", line)
            asking = [way.program, url, gaps, steps, first, count, way.together]
            pipe = subprocess.PIPE
            compiler = subprocess.Popen(
                list(map(str, asking)), stdin=pipe, stdout=pipe, stderr=pipe
            )
            stack.callback(compiler.kill)
            compilers.append(compiler)
        for compiler in compilers:
            assert compiler.stderr
            if compiler.stderr.readline() != b"ready\n":
                raise RuntimeError(f"{way.name}: {compiler.communicate()[1].decode()}")
        used, busy = sum(map(cpu_of, servers)), busy_seconds()
        for compiler in compilers:
            assert compiler.stdin
            compiler.stdin.write(b"\n")
            compiler.stdin.flush()
        said = [np.frombuffer(compiler.communicate()[0], np.int64) for compiler in compilers]
        busy = busy_seconds() - busy
        host = sum(map(cpu_of, servers)) - used
    if any(len(each) != 3 + count for each in said):
        raise RuntimeError(f"{way.name}: a compiler failed")
    us = np.concatenate([each[3:] for each in said]) / 1000
    return {
        "mean": float(us.mean()),
        "p50": float(np.median(us)),
        "p99": float(np.quantile(us, 0.99)),
        "host": host * 1e6 / us.size,
        "system": busy * 1e6 / us.size,
        "both": host * 1e6 / us.size + sum(int(each[1]) for each in said) / 1000 / us.size,
        "wall": max(int(each[0]) for each in said) / 1000,
        "advice": [int(each[2]) for each in said],
    }
