"""Eleven kinds of misbehaving compilers among eight workers: every compilation is accounted for,
and nothing is left or grows."""

import os
import signal
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from support.compilations import marked
from support.processes import until, words_of

from shmbridge.training import Corpus, Workers

pytest.importorskip("gymnasium")
from shmbridge.envs import CompilerVectorEnv

WORKERS = 8
# What a compiler does, by its module's name, and what its episode ends with: kind and exit status.
ENDS = {
    "good": ("ok", 0),
    "segfault": ("advice", -signal.SIGSEGV),
    "abort": ("advice", -signal.SIGABRT),
    "mute": None,  # it exits before it asks: no episode, and the next compiler takes its place
    "early": ("no score", 0),
    "fails": ("advice", 1),
    "hangs": ("time limit", -signal.SIGKILL),
    "ignores": ("time limit", -signal.SIGKILL),
    "eats": ("memory limit", -signal.SIGKILL),
    "floods": ("ok", 0),
    "leaves": ("ok", 0),
    "garbage": ("no score", 0),
}
LATE = ENDS["hangs"]  # on a busy machine any may be
COMPILER = """
what = os.path.basename(module).partition(".")[0]
if not os.environ.get("SHMBRIDGE_URL"): what, ask = "good", lambda: None
if what == "mute": sys.exit(3)
ask()
os.write(2, what.encode())
if what in ("segfault", "abort"):
    import resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.kill(os.getpid(), signal.SIGSEGV if what == "segfault" else signal.SIGABRT)
if what == "early": sys.exit(0)
if what == "fails": sys.exit(1)
if what == "ignores": signal.signal(signal.SIGTERM, signal.SIG_IGN)
if what in ("hangs", "ignores"): time.sleep(1000)
if what == "eats": taken = b"x" * (300 << 20); time.sleep(1000)
if what == "floods": os.write(2, b"flood" * (1 << 20))
if what == "leaves": subprocess.Popen(["sleep", "1000"], start_new_session=True)
with open(output, "wb") as file: file.write(b"garbage" if what == "garbage" else b"1234")
"""


def size(path):
    """Of an output, unless that is garbage."""
    assert path.read_bytes() != b"garbage"
    return os.path.getsize(path)


class Counted(Workers):
    """Counts what began."""

    begun = 0

    def begin(self, *args, **options):
        self.begun += 1
        return super().begin(*args, **options)


@pytest.fixture
def kinds(tmp_path):
    """A corpus with a module for each kind, and some good ones more. All have one text, so that one
    baseline is theirs."""
    names = [*ENDS, *(f"good.{i}" for i in range(6))]
    for name in names:
        (tmp_path / f"{name}.txt").write_text("text")
    return Corpus.from_sources(*(tmp_path / f"{name}.txt" for name in names))


def held():
    """This process's memory in MiB, descriptors and threads."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return np.array(
        [
            int(status["VmRSS"].split()[0]) >> 10,
            len(os.listdir("/proc/self/fd")),
            int(status["Threads"]),
        ]
    )


def ended(infos, row, terminated):
    """The kind of an episode's end, which is as its module says."""
    module = infos["module"][row].partition(".")[0]
    kind, status = infos["kind"][row], infos["exit"][row]
    as_said = (kind, status) == ENDS[module] or kind == LATE[0]  # it may still end by itself then
    assert as_said, (module, kind, status, infos["stderr"][row])
    scored = infos["scores"].get("_size")
    assert terminated == (kind == "ok") == (scored is not None and scored[row])
    assert module == "floods" or kind == LATE[0] or infos["stderr"][row].startswith(module)
    assert infos["command"][row]
    return module, kind


def test_every_compilation_is_accounted_for(name, py, kinds, long, shm_files, no_leftovers):
    episodes, warm, seconds = (1000, 100, 2) if long else (40, 16, 1.2)
    task = py(COMPILER, scores={"size": size}, seconds=seconds, memory=120 << 20)
    task.baseline(kinds[0])
    workers = Counted(task, kinds.sampler(1))
    before, modules, seen = held(), Counter(), Counter()
    with closing(CompilerVectorEnv(name, WORKERS, actions=10, workers=workers, channels=32)) as env:
        env.reset(seed=1)
        at_warm, expected = None, ENDS.keys() - {"mute"}
        while seen.total() < episodes or (modules.keys() != expected and seen.total() < 1000):
            _, _, terminated, truncated, infos = env.step(np.zeros(WORKERS, int))
            assert not (terminated & truncated).any()
            for row in np.flatnonzero(terminated | truncated):
                module, kind = ended(infos, row, terminated[row])
                modules[module] += 1
                seen[kind] += 1
            if at_warm is None and seen.total() >= warm:
                at_warm = held()
        grown = held() - at_warm
    assert modules.keys() == expected
    counts = Counter(workers.counts)
    assert counts.total() == workers.begun
    unseen = counts - seen  # those without an episode, and those that the end of the trainer ended
    assert unseen["advice"] > 0 and unseen["ended"] <= WORKERS
    assert unseen.keys() <= {"advice", "ended", LATE[0]} and not seen - counts
    assert shm_files() == set()
    assert not [pid for pid in marked(no_leftovers) if "compiler-" in words_of(pid)]
    assert (grown <= (16, 2 * WORKERS, 2 * WORKERS)).all(), grown
    print(episodes, "episodes:", dict(modules), dict(counts), "grown by", grown)
    until(lambda: (held() - before <= (np.inf, 4, 0)).all())
