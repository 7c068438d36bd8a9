"""Hosts of named pipes as ML-Compiler-Bridge's clients see them, and `shmbridge run` of unmodified
compilers."""

import re
import subprocess
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from support.requests import FIRST, their_client
from support.stock import clang, environment, run_words

from shmbridge import Host, connect


@pytest.fixture
def sent(tmp_path):
    """sent(model, **options): the frame, without its length, that a client of theirs gets for its
    question."""

    def go(model, query="", **options):
        with (
            Host(f"pipe://{tmp_path}/p{query}", **options) as host,
            host.start(model),
            their_client(tmp_path / "p") as ask,
        ):
            length, body = ask(FIRST)
        return body if length < 1 << 62 else (length, body)

    return go


@pytest.fixture
def pair(tmp_path):
    """pair(model, serdes, dtype): what a runner of ours gets from a host of ours."""

    def ask(model, serdes="bitstream", dtype=None):
        url = f"pipe://{tmp_path}/p?serdes={serdes}"
        with Host(url) as host, host.start(model), connect(url, deadline=20) as runner:
            return runner.evaluate({"x": np.arange(3)}, dtype=dtype)

    return ask


@pytest.fixture(params=["preload", "pipes"])
def transport(request):
    return [] if request.param == "preload" else ["--pipes"]


@dataclass
class Outcome:
    status: int
    stderr: str
    questions: Counter  # (decision, context, label, features): how often
    asked: int
    advised: int

    @property
    def defaulted(self):
        return self.asked - self.advised


@pytest.fixture
def shmbridge_run(transport, tmp_path):
    """shmbridge_run(decisions, policy, *command): how it went; the command is clang-22's, unless
    one is given."""

    def go(decisions, policy, *command, options=()):
        log = tmp_path / "questions"
        log.unlink(missing_ok=True)
        started = run_words(decisions, policy, "-v", *transport, *options)
        done = subprocess.run(
            [*started, *map(str, command or clang(22, tmp_path))],
            env=environment(tmp_path),
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )
        found = re.search(
            r"^(?:shmbridge|Error): (?:compiling without .*?: )?"
            r"the policy made (\d+) of (\d+) decisions.*\n",
            done.stderr,
            re.MULTILINE,
        )
        lines = log.read_text().splitlines() if log.exists() else []
        questions = Counter(tuple(line.split(" ")) for line in lines)
        rest = done.stderr.replace(found[0], "") if found else done.stderr
        advised, asked = map(int, found.groups()) if found else (0, 0)
        return Outcome(done.returncode, rest, questions, asked, advised)

    return go
