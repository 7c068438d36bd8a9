"""plan:// in the C core: it accepts the files that Python accepts, answers as they say, and works
without Python."""

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cli import run
from support.stock import SMALL
from test_plan import plan_file, text_of

import shmbridge
from shmbridge._llvm.plan import DEFAULT, Decision, Site, question_hash, read
from shmbridge.errors import InvalidError, MismatchError, ShmbridgeError
from shmbridge.training.scores import text_size

FEATURES = ["node_count", "cost", DEFAULT, "edge_count", "users"]
VALUES = st.tuples(
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([-1, 0, 2**63 - 1, -(2**63)]),
    st.integers(0, 1),
    st.integers(0, 5),
    st.integers(0, 1),
)


@settings(max_examples=60)
@given(st.lists(VALUES, max_size=30), st.data())
def test_each_question_gets_its_decision_otherwise_llvms_own(asked, data):
    sites, counts = [], Counter()
    for values in asked:
        of_site = question_hash([values[1], values[2], values[4]])
        counts[of_site] += 1
        sites.append(Site(of_site, counts[of_site]))
    decided = data.draw(
        st.dictionaries(st.sampled_from(sites), st.integers(0, 1)) if sites else st.just({})
    )
    text = text_of(decisions={site: Decision(advice) for site, advice in decided.items()})
    with plan_file(text.encode()) as path, plan_file() as report:
        with shmbridge.connect(f"plan://{path}?report={report}") as runner:
            for site, values in zip(sites, asked, strict=True):
                request = {
                    name: np.array([value]) for name, value in zip(FEATURES, values, strict=True)
                }
                advice = runner.evaluate({**request, "context": "f", "decision": "inlining"})
                assert advice == decided.get(site, values[2])
        assert Path(report).read_bytes() == b"1" * len(decided)


def test_questions_about_something_else_are_refused():
    with plan_file(text_of().encode()) as path, shmbridge.connect(f"plan://{path}") as runner:
        with pytest.raises(MismatchError, match="expected inlining_default|--include-default"):
            runner.evaluate({"cost": np.array([1])})
        with pytest.raises(MismatchError, match=r'"weight".*int64\[1\]'):
            runner.evaluate({"weight": np.array([1.0])})
        with pytest.raises(MismatchError, match=r'"mask".*int64\[1\]'):
            runner.evaluate({"mask": np.array([1, 2])})
        assert runner.evaluate({DEFAULT: np.array([1])}) == 1


def test_what_is_no_plan_is_refused(tmp_path):
    for where, said in (
        (tmp_path / "none.plan", "No such file"),
        (tmp_path, "found no file"),
        ("", "expected a plan"),
    ):
        with pytest.raises(ShmbridgeError, match=said):
            shmbridge.connect(f"plan://{where}")
    with plan_file(text_of().encode()) as path:
        with pytest.raises(InvalidError, match="unknown option"):
            shmbridge.connect(f"plan://{path}?strict=1")
        os.mkfifo(tmp_path / "pipe")  # nobody reads it
        for report in (tmp_path, tmp_path / "pipe"):
            with pytest.raises(ShmbridgeError, match="report"):
                shmbridge.connect(f"plan://{path}?report={report}")


@pytest.mark.parametrize("options", [(), ("--pipes",)])
def test_a_compiler_asks_a_plan_without_a_host(folder, options):
    asking = ["run", "--strict", "--llvm", "inline", *options, "--connect"]
    done = run(*asking, f"plan://{folder}/small.plan", "--", *SMALL, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert text_size(folder / "small.o") == read(folder / "small.plan").after
