"""Training logs: what is written others can read, and nothing that is read can do harm."""

import json
import math
import signal
import struct

import numpy as np
import pytest

from shmbridge.errors import InvalidError
from shmbridge.logs import LogWriter, TrainingLog
from shmbridge.logs._writer import LAYOUTS, LINE_BYTES

# ---- A reader of LLVM's format that knows nothing of ours ----


def read_plainly(path):
    """(header, [(context, observation, values of each feature, values of the score), …])"""
    with path.open("rb") as file:

        def line():
            text = file.readline()
            return text and json.loads(text)

        def tensors(specs):
            values = []
            for spec in specs:
                kind = {"float": "f4", "double": "f8"}.get(spec["type"], spec["type"][:-2])
                size = math.prod(spec["shape"]) * np.dtype(kind).itemsize
                values.append(np.frombuffer(file.read(size), kind).tolist())
            assert file.readline() == b"\n"
            return values

        header, context, records = line(), None, []
        while event := line():
            if "context" in event:
                context, event = event["context"], line()
            values, score = tensors(header["features"]), None
            if "score" in header:
                assert line() == {"outcome": event["observation"]}
                (score,) = tensors([header["score"]])
            records.append((context, event["observation"], values, score))
        return header, records


# ---- Written ----


QUESTION = {
    "size": np.array([7], np.int64),
    "weights": np.array([[1.5, -2], [0, np.inf]], np.float32),
}


def test_the_bytes_are_llvms(write, path):
    write(({"x": np.array([1, 2], np.uint8), "context": "f"}, np.float32(1)))
    spec = '{"name":"advice","type":"float","port":0,"shape":[]}'
    x = f'{{"name":"x","type":"uint8_t","port":0,"shape":[2]}},{spec}'
    text = f'{{"features":[{x}],"advice":{spec}}}\n{{"context":"f"}}\n{{"observation":0}}\n'
    assert path.read_bytes() == text.encode() + b"\1\2" + struct.pack("=f", 1) + b"\n"


def test_compilerinterfaces_reader_reads_it(write, path):
    reader = pytest.importorskip("compilerinterface.log_reader", exc_type=ImportError)
    write((QUESTION, 3), (QUESTION, 4))
    found = [
        [list(value) for value in features] for _, _, features, _ in reader.read_stream(str(path))
    ]
    assert found == [[[7], [1.5, -2, 0, float("inf")], [advice]] for advice in (3, 4)]


def test_contexts_are_lines_and_count_their_own_observations(write, path):
    x = np.zeros(1)
    write(*[({"x": x, "context": name}, i) for i, name in enumerate(["f", "f", "g", "f", ""])])
    _, records = read_plainly(path)
    counted = [("f", 0), ("f", 1), ("g", 0), ("f", 2), ("", 0)]
    assert [(context, number) for context, number, *_ in records] == counted
    assert path.read_bytes().count(b'{"context"') == 4
    assert [(r.context, r.observation) for r in TrainingLog(path)] == counted


def test_a_label_names_the_source_and_is_no_feature(path):
    x = {"x": np.zeros(1)}
    with LogWriter(path) as log:
        for question, label in [(x, "a.c"), (x, "a.c"), (x, "b.c"), ({**x, "context": "f"}, "b.c")]:
            log.write(question, 1, label=label)
    assert log.paths == [path]
    _, records = read_plainly(path)
    assert [(context, number) for context, number, *_ in records] == [
        ("a.c", 0), ("a.c", 1), ("b.c", 0), ("f", 0),
    ]  # fmt: skip
    assert [(r.label, r.question.get("context")) for r in TrainingLog(path)] == [
        ("a.c", None), ("a.c", None), ("b.c", None), ("b.c", "f"),
    ]  # fmt: skip


def test_a_decision_names_the_advice_and_comes_back(write, path):
    question = {"x": np.zeros(1), "context": "f", "decision": "index_to_evict"}
    write((question, 3))
    header, _ = read_plainly(path)
    assert (
        header["features"][-1]["name"]
        == header["advice"]["name"]
        == header["decision"]
        == "index_to_evict"
    )
    (record,) = TrainingLog(path)
    assert record.question == question
    assert dict(record.advice) == {"index_to_evict": 3}


def test_several_advices_are_the_last_features(write, path):
    write(({"a": np.int8(1), "b": np.int8(2)}, {"b": np.arange(3), "c": True}))
    header, records = read_plainly(path)
    assert [spec["name"] for spec in header["features"]] == ["a", "b", "b", "c"]
    (record,) = TrainingLog(path)
    assert record.question == {"a": 1, "b": 2}
    assert record.advice["b"].tolist() == [0, 1, 2] and record.advice["c"].dtype == np.bool_
    assert record.layout.want is None


def test_a_reward_is_an_outcome(write, path):
    write((QUESTION, 3), (QUESTION, 4), reward=np.array([0.25], np.float32))
    header, records = read_plainly(path)
    assert header["score"] == {"name": "reward", "type": "float", "port": 0, "shape": [1]}
    assert [score for *_, score in records] == [[0.25], [0.25]]
    assert [r.score.tolist() for r in TrainingLog(path) if r.score is not None] == [[0.25], [0.25]]


def test_the_advice_is_logged_as_the_compiler_asked_for_it(write, path):
    write((QUESTION, np.int32(3)), want=np.float64)
    (record,) = TrainingLog(path)
    assert record.advice["advice"].dtype == record.layout.want == np.float64


@pytest.mark.parametrize("dtype", ["bool", "float16", "bfloat16"])
def test_dtypes_that_llvm_lacks_are_unsigned_integers_to_it(write, path, dtype):
    kind = pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else dtype
    x = np.array([0, 1, 1], kind)
    write(({"x": x}, 1))
    header, ((_, _, values, _),) = read_plainly(path)
    assert header["features"][0]["type"] == f"uint{8 * x.dtype.itemsize}_t"
    assert values[0] == x.view(f"u{x.dtype.itemsize}").tolist()
    (record,) = TrainingLog(path)
    assert record.features["x"].dtype == x.dtype and record.features["x"].tolist() == x.tolist()


def test_each_layout_has_its_file(write, path):
    one, two = {"x": np.zeros(1)}, {"x": np.zeros(2)}
    paths = write((one, 1), (two, 2), (one, 3), ({"x": np.zeros(1), "context": ""}, 4), (one, 5.0))
    assert paths == [path, *(path.with_name(f"{path.name}.{n}") for n in (2, 3, 4))]
    found = [[r.advice["advice"].item() for r in TrainingLog(p)] for p in paths]
    assert found == [[1, 3], [2], [4], [5.0]]


def test_files_that_exist_are_left_alone(write, path):
    path.write_text("precious")
    path.with_name(f"{path.name}.3").write_text("too")
    paths = write(({"x": np.zeros(1)}, 1), ({"x": np.zeros(2)}, 1))
    assert [p.name[len(path.name) :] for p in paths] == [".2", ".4"]
    assert path.read_text() == "precious"


def test_a_log_of_nothing_leaves_no_file(write, path):
    assert write() == [] and not path.exists()


def test_a_file_that_cannot_be_made_is_an_error_at_once(tmp_path):
    with pytest.raises(FileNotFoundError):
        LogWriter(tmp_path / "none" / "log")


def test_texts_and_lists_are_left_out_with_one_warning_each(path):
    said = []
    question = {
        "x": np.zeros(1),
        "function": "f",
        "names": ["a", "b"],
        "rows": [[1], [2, 3]],
        "context": np.zeros(1),
    }
    with LogWriter(path, warn=said.append) as log:
        for _ in range(3):
            log.write(question, 1)
    assert [text.split()[0] for text in said] == ['"function"', '"names"', '"rows"']
    assert [r.question.keys() for r in TrainingLog(path)] == 3 * [{"x", "context"}]


def test_what_cannot_be_recorded_is_told(path):
    said = []
    log = LogWriter(path, warn=said.append)
    with pytest.raises(InvalidError, match='"pass": expected advice that is a tensor'):
        log.write(QUESTION, {"pass": "inline"})
    log.record(QUESTION, "inline")
    log.record(QUESTION, "inline")  # is not told again
    log.record(QUESTION, {})
    log.record({**QUESTION, "context": "f" * LINE_BYTES}, 1)
    log.record({"x" * LINE_BYTES: 1}, 1)
    log.record(QUESTION, object())
    log.close()
    log.close()
    log.record(QUESTION, 1)
    whys = [
        "expected advice that is a tensor",
        "expected advice, found none",
        "fit a line",
        "fit a line",
        '"advice": expected a number',
        "is closed",
    ]
    assert all(why in text for why, text in zip(whys, said, strict=True))
    assert not path.exists() and (log.recorded, log.left_out) == (0, 7)


def test_layouts_without_end_are_left_out(path):
    said = []
    with LogWriter(path, warn=said.append) as log:
        for n in range(LAYOUTS + 3):
            log.record({"x": np.zeros(n, np.int8)}, 1)
    assert (log.recorded, log.left_out, len(said)) == (LAYOUTS, 3, 1)


def test_a_full_disk_leaves_whole_records(path):
    resource = pytest.importorskip("resource")
    before, handler = (
        resource.getrlimit(resource.RLIMIT_FSIZE),
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
    )
    said = []
    with LogWriter(path, warn=said.append) as log:
        log.record({"x": np.zeros(100)}, 1)
        try:
            # The next record does not fit.
            resource.setrlimit(resource.RLIMIT_FSIZE, (1200, before[1]))
            log.record({"x": np.ones(100)}, 2)
            log.record({"x": np.ones(100)}, 2)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)
        log.record({"x": np.zeros(100)}, 3)
    assert (log.recorded, log.left_out, len(said)) == (2, 2, 1) and "File too large" in said[0]
    found = TrainingLog(path)
    assert [int(record.advice["advice"]) for record in found] == [1, 3] and not found.torn
