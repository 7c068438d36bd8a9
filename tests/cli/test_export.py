"""shmbridge export: a line of JSON for each decision of a training log."""

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from support.cli import refused, run
from support.values import DTYPES

from shmbridge.cli.export import _line
from shmbridge.logs import LogWriter, TrainingLog


def test_a_line_has_question_advice_and_what_else_the_log_has(tmp_path):
    log, lines = tmp_path / "a.tlog", tmp_path / "a.jsonl"
    with LogWriter(log) as writer:
        asked = {"x": np.float32([[1, 2], [3, np.nan]]), "inlining_default": np.int64([0])}
        more = {"context": "main", "decision": "inline"}
        writer.write({**asked, **more}, np.int64(1), reward=np.float32(0.5), label="a.c")
        writer.write({"x": np.bool_(True), "x_advice": 2, "advice": 3}, 4)
    done = run("export", log, log.with_name("a.tlog.2"), lines)
    assert done.stdout.startswith("2 records"), done.stderr
    first, second = map(json.loads, lines.read_text().splitlines())
    question = {"x": [[1, 2], [3, "nan"]], "inlining_default": 0}
    told = {"advice": {"inline": 1}, "default": 0, "score": 0.5}
    assert first == more | {"label": "a.c", "question": question} | told
    question = {"x": True, "x_advice": 2, "advice": 3}
    assert second == {"question": question, "advice": {"advice": 4}}


NAMES = st.text("x_advice", min_size=1, max_size=8)
VALUES = st.sampled_from(DTYPES).flatmap(
    lambda dtype: npst.array_shapes(min_dims=0, min_side=0).map(
        lambda shape: np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape)
    )
)
BY_NAME = st.dictionaries(NAMES, VALUES, min_size=1, max_size=3)


@given(features=BY_NAME, advice=BY_NAME, reward=st.none() | st.floats(allow_nan=False))
@settings(max_examples=60)
def test_nothing_of_a_record_is_lost(tmp_path_factory, features, advice, reward):
    path = tmp_path_factory.mktemp("log") / "log"
    advice = {name: value for name, value in advice.items() if name not in features} or {"a": 1.0}
    with LogWriter(path) as log:
        log.write(features, advice, reward=reward)
    line = json.loads(json.dumps(_line(next(iter(TrainingLog(path)))), allow_nan=False))
    for sent, found in ((features, line["question"]), (advice, line["advice"])):
        assert found.keys() == sent.keys()
        for name, value in sent.items():
            wanted = np.asarray(value, np.float64)
            np.testing.assert_array_equal(np.float64(found[name]).reshape(wanted.shape), wanted)
    assert float(line.get("score", "nan")) == reward or reward is None


def test_a_file_that_exists_and_a_log_that_is_none_are_refused(tmp_path):
    log, lines = tmp_path / "log", tmp_path / "lines"
    with LogWriter(log) as writer:
        writer.write({"x": 1}, 2)
    lines.write_text("mine")
    assert "File exists" in refused(1, "export", log, lines, cwd=tmp_path)
    assert lines.read_text() == "mine"
    log.write_bytes(log.read_bytes() + b"no JSON\n")
    assert "expected a line of JSON" in refused(1, "export", log, "half", cwd=tmp_path)
    assert not (tmp_path / "half").exists()
