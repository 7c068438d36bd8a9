"""A trainer and the supervisor of its compilers, killed at random moments: nothing is left of
either, and every compilation of a trainer that lives has an outcome. --long: 600 kills."""

import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from functools import partial

import pytest
from support.compilations import MARK, marked
from support.processes import stat_of, until, words_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

TRAINER = """
    import os, sys, threading
    from shmbridge import ShmbridgeError
    from shmbridge.training import Corpus, Task

    corpus = Corpus.from_sources(*sys.argv[1:])
    script = "setsid sleep 1000 & cp $1 $2; sleep 0.0$3"
    task = Task(
        ["sh", "-c", script, "sh", "{module}", "{output}", "1"], scores={"size": os.path.getsize}
    )
    task.words.remove("{flags}")
    stop = threading.Event()

    def say(word):
        os.write(1, f"{word}\\n".encode())

    def compile(sampler):
        for module in sampler:
            if stop.is_set():
                return
            say("asked")
            try:
                outcome = task.run(module)
            except ShmbridgeError as error:  # the supervisor was killed while it started, or twice
                say("error" if "start" in str(error) else error)
            else:
                well = outcome.ok and outcome.scores == {"size": os.path.getsize(module.path)}
                say("answered" if well else "error" if outcome.kind == "ended" else outcome)

    say("ready")
    threads = [threading.Thread(target=compile, args=(corpus.sampler(n),)) for n in range(3)]
    for thread in threads:
        thread.start()
    sys.stdin.readline()
    stop.set()
"""


def kill_supervisor(mark):
    """Whether there was one. A session's leader only starts it."""
    for pid in marked(mark):
        _, _, _, session, *_ = stat_of(pid) or [0] * 4
        if "_jobs.supervisor" in words_of(pid) and int(session) != pid:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                return True
    return False


@pytest.mark.parametrize(("victim", "kills"), [("trainer", 100), ("supervisor", 500)])
def test_nothing_is_left_and_every_compilation_has_an_outcome(
    victim, kills, name, python, in_thread, tmp_path, long, record
):
    kills, chance = (kills, random.Random(time.time())) if long else (3, random.Random(1))
    counts, killed, began = Counter(), 0, time.monotonic()
    folder = tmp_path / "work"
    folder.mkdir()
    modules = [tmp_path / f"{letter}.txt" for letter in "abc"]
    for module in modules:
        module.write_text(module.name)
    environment = {**os.environ, MARK: name, "TMPDIR": str(folder)}

    def answers(before):
        return counts["answered"] > before

    while killed < kills:
        trainer = python(TRAINER, *modules, env=environment)
        assert trainer.line() == "ready"
        reading = in_thread(counts.update, map(str.strip, trainer.stdout))
        ends = killed + 1 if victim == "trainer" else kills
        while killed < ends:
            if chance.random() < 0.8:  # otherwise perhaps while it starts
                until(partial(answers, counts["answered"]), 60)
            time.sleep(chance.random() * 0.1)
            if victim == "trainer":
                trainer.kill()
            killed += victim == "trainer" or kill_supervisor(name)
        with suppress(BrokenPipeError):
            trainer.say("stop")
        assert trainer.wait(60) == (-signal.SIGKILL if victim == "trainer" else 0)
        reading.result()
        until(lambda: not marked(name) and not [*folder.iterdir()])
    assert {*counts} <= {"asked", "answered", "error"}, counts
    open_ = counts["asked"] - counts["answered"] - counts["error"]
    assert not open_ or victim == "trainer"
    seconds = round(time.monotonic() - began, 1)
    record(f"Python {victim} random", kills=killed, **counts, open=open_, seconds=seconds)
