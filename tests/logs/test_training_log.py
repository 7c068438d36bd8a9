"""Training logs: what is written others can read, and nothing that is read can do harm."""

from __future__ import annotations

import itertools
import json
import math
import pickle
import signal
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from support.values import NAMED_DTYPES

from shmbridge.errors import CorruptError, InvalidError
from shmbridge.logs import LogWriter, TrainingLog
from shmbridge.logs._writer import LAYOUTS, LINE_BYTES

# ---- A reader of LLVM's format that knows nothing of ours ----


def read_plainly(path: Path) -> tuple[dict[str, Any], list[tuple[Any, int, list[Any], Any]]]:
    """(header, [(context, observation, values of each feature, values of the score), …])"""
    with path.open("rb") as file:

        def line() -> Any:
            text = file.readline()
            return text and json.loads(text)

        def tensors(specs: list[dict[str, Any]]) -> list[Any]:
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


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "decisions.log"


def write(path: Path, *records: tuple[dict[str, Any], Any], **options: Any) -> list[Path]:
    with LogWriter(path, warn=pytest.fail) as log:
        for features, advice in records:
            log.write(features, advice, **options)
    return log.paths


QUESTION = {
    "size": np.array([7], np.int64),
    "weights": np.array([[1.5, -2], [0, np.inf]], np.float32),
}


def test_the_bytes_are_llvms(path: Path) -> None:
    write(path, ({"x": np.array([1, 2], np.uint8), "context": "f"}, np.float32(1)))
    spec = '{"name":"advice","type":"float","port":0,"shape":[]}'
    assert (
        path.read_bytes()
        == (
            f'{{"features":[{{"name":"x","type":"uint8_t","port":0,"shape":[2]}},{spec}],'
            f'"advice":{spec}}}\n'
            '{"context":"f"}\n{"observation":0}\n'
        ).encode()
        + b"\x01\x02"
        + struct.pack("=f", 1)
        + b"\n"
    )


def test_compilerinterfaces_reader_reads_it(path: Path) -> None:
    reader = pytest.importorskip("compilerinterface.log_reader", exc_type=ImportError)
    write(path, (QUESTION, 3), (QUESTION, 4))
    found = [
        [list(value) for value in features] for _, _, features, _ in reader.read_stream(str(path))
    ]
    assert found == [[[7], [1.5, -2, 0, float("inf")], [advice]] for advice in (3, 4)]


def test_contexts_are_lines_and_count_their_own_observations(path: Path) -> None:
    x = np.zeros(1)
    write(
        path, *[({"x": x, "context": name}, i) for i, name in enumerate(["f", "f", "g", "f", ""])]
    )
    _, records = read_plainly(path)
    counted = [("f", 0), ("f", 1), ("g", 0), ("f", 2), ("", 0)]
    assert [(context, number) for context, number, *_ in records] == counted
    assert path.read_bytes().count(b'{"context"') == 4
    assert [(r.context, r.observation) for r in TrainingLog(path)] == counted


def test_a_label_names_the_source_and_is_no_feature(path: Path) -> None:
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


def test_a_decision_names_the_advice_and_comes_back(path: Path) -> None:
    question = {"x": np.zeros(1), "context": "f", "decision": "index_to_evict"}
    write(path, (question, 3))
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


def test_several_advices_are_the_last_features(path: Path) -> None:
    write(path, ({"a": np.int8(1), "b": np.int8(2)}, {"b": np.arange(3), "c": True}))
    header, records = read_plainly(path)
    assert [spec["name"] for spec in header["features"]] == ["a", "b", "b", "c"]
    (record,) = TrainingLog(path)
    assert record.question == {"a": 1, "b": 2}
    assert record.advice["b"].tolist() == [0, 1, 2] and record.advice["c"].dtype == np.bool_
    assert record.layout.want is None


def test_a_reward_is_an_outcome(path: Path) -> None:
    write(path, (QUESTION, 3), (QUESTION, 4), reward=np.array([0.25], np.float32))
    header, records = read_plainly(path)
    assert header["score"] == {"name": "reward", "type": "float", "port": 0, "shape": [1]}
    assert [score for *_, score in records] == [[0.25], [0.25]]
    assert [r.score.tolist() for r in TrainingLog(path) if r.score is not None] == [[0.25], [0.25]]


def test_the_advice_is_logged_as_the_compiler_asked_for_it(path: Path) -> None:
    write(path, (QUESTION, np.int32(3)), want=np.float64)
    (record,) = TrainingLog(path)
    assert record.advice["advice"].dtype == record.layout.want == np.float64


@pytest.mark.parametrize("dtype", ["bool", "float16", "bfloat16"])
def test_dtypes_that_llvm_lacks_are_unsigned_integers_to_it(path: Path, dtype: str) -> None:
    kind = pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else dtype
    x = np.array([0, 1, 1], kind)
    write(path, ({"x": x}, 1))
    header, ((_, _, values, _),) = read_plainly(path)
    assert header["features"][0]["type"] == f"uint{8 * x.dtype.itemsize}_t"
    assert values[0] == x.view(f"u{x.dtype.itemsize}").tolist()
    (record,) = TrainingLog(path)
    assert record.features["x"].dtype == x.dtype and record.features["x"].tolist() == x.tolist()


def test_each_layout_has_its_file(path: Path) -> None:
    one, two = {"x": np.zeros(1)}, {"x": np.zeros(2)}
    paths = write(
        path, (one, 1), (two, 2), (one, 3), ({"x": np.zeros(1), "context": ""}, 4), (one, 5.0)
    )
    assert paths == [path, *(path.with_name(f"{path.name}.{n}") for n in (2, 3, 4))]
    found = [[r.advice["advice"].item() for r in TrainingLog(p)] for p in paths]
    assert found == [[1, 3], [2], [4], [5.0]]


def test_files_that_exist_are_left_alone(path: Path) -> None:
    path.write_text("precious")
    path.with_name(f"{path.name}.3").write_text("too")
    paths = write(path, ({"x": np.zeros(1)}, 1), ({"x": np.zeros(2)}, 1))
    assert [p.name[len(path.name) :] for p in paths] == [".2", ".4"]
    assert path.read_text() == "precious"


def test_a_log_of_nothing_leaves_no_file(path: Path) -> None:
    assert write(path) == [] and not path.exists()


def test_a_file_that_cannot_be_made_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        LogWriter(tmp_path / "none" / "log")


def test_texts_and_lists_are_left_out_with_one_warning_each(path: Path) -> None:
    said: list[str] = []
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


def test_what_cannot_be_recorded_is_told(path: Path) -> None:
    said: list[str] = []
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


def test_layouts_without_end_are_left_out(path: Path) -> None:
    said: list[str] = []
    with LogWriter(path, warn=said.append) as log:
        for n in range(LAYOUTS + 3):
            log.record({"x": np.zeros(n, np.int8)}, 1)
    assert (log.recorded, log.left_out, len(said)) == (LAYOUTS, 3, 1)


def test_a_full_disk_leaves_whole_records(path: Path) -> None:
    resource = pytest.importorskip("resource")
    before, handler = (
        resource.getrlimit(resource.RLIMIT_FSIZE),
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
    )
    said: list[str] = []
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


# ---- Read ----

LLVMS = (
    b'{"features":[{"name":"callees","type":"int64_t","port":0,"shape":[1]},{"name":"w",'
    b'"type":"float","port":0,"shape":[1,2]},'
    b'{"name":"inlining_decision","type":"int64_t","port":0,"shape":[1]}],'
    b'"score":{"name":"delta_size","type":"int64_t","port":0,"shape":[1]}}\n'
    b'{"context":"default"}\n{"observation":0}\n'
    + struct.pack("=qffq", 5, 0.5, 1.5, 1)
    + b'\n{"outcome":0}\n'
    + struct.pack("=q", -12)
    + b'\n{"observation":1}\n'
    + struct.pack("=qffq", 6, 0.5, 1.5, 0)
    + b'\n{"outcome":1}\n'
    + struct.pack("=q", 0)
    + b"\n"
)


def test_a_log_of_clangs_has_its_advice_last(path: Path) -> None:
    path.write_bytes(LLVMS)
    first, second = TrainingLog(path)
    assert first.question.keys() == {"callees", "w", "context", "decision"}
    assert (first.context, first.question["decision"]) == ("default", "inlining_decision")
    assert first.features["w"].tolist() == [[0.5, 1.5]] and first.features["w"].dtype == np.float32
    assert [dict(r.advice) for r in (first, second)] == [
        {"inlining_decision": 1},
        {"inlining_decision": 0},
    ]
    assert first.score is not None and first.score.tolist() == [-12]
    assert first.layout.want == np.int64


def test_what_llvm_writes_to_a_channel_has_no_advice(path: Path) -> None:
    path.write_bytes(
        b'{"features":[{"name":"x","type":"int8_t","port":0,"shape":[2]}],"advice":{"name":"d",'
        b'"type":"float","port":0,"shape":[1]}}\n'
        b'{"context":"f"}\n{"context":"g"}\n{"observation":0}\n\x01\x02\n{"news":1}\n'
        b'{"observation":1}\n\n\n\n{"context":"h"}\n'
    )
    log = TrainingLog(path)
    assert [(r.context, r.observation, r.features["x"].tolist(), dict(r.advice)) for r in log] == [
        ("g", 0, [1, 2], {}),
        ("g", 1, [10, 10], {}),
    ]
    assert (log.layout.want, log.layout.decision, log.torn) == (np.float32, "d", "")


def test_logs_in_a_row_are_one(path: Path) -> None:
    first, second = write(path, ({"x": np.zeros(1), "context": "f"}, 1), ({"y": np.zeros(2)}, 2))
    path.write_bytes(first.read_bytes() + second.read_bytes())
    assert [(r.context, r.question.keys()) for r in TrainingLog(path)] == [
        ("f", {"x", "context"}),
        (None, {"y"}),
    ]


def test_records_can_be_pickled(path: Path) -> None:
    path.write_bytes(LLVMS)
    record = next(iter(TrainingLog(path)))
    again = pickle.loads(pickle.dumps(record))
    assert again.layout == record.layout
    np.testing.assert_array_equal(again.features["w"], record.features["w"])


def test_the_place_of_an_error_and_of_a_cut_is_told(path: Path, caplog: Any) -> None:
    at = LLVMS.index(b'{"outcome":1}')
    path.write_bytes(LLVMS.replace(b'{"outcome":1}', b'{"outcome":0}'))
    with pytest.raises(CorruptError, match=rf'{path}, byte {at}: expected {{"outcome":1}}'):
        list(TrainingLog(path))
    path.write_bytes(LLVMS[:-3])
    log = TrainingLog(path)
    assert len(list(log)) == 1
    cut = f"byte {len(LLVMS) - 9}, are cut off: what came before them was read"
    assert log.torn == caplog.messages[0] == f"{path}: the last tensors, at {cut}"


def test_arrays_are_views_of_what_was_read(path: Path) -> None:
    path.write_bytes(LLVMS)
    record = next(iter(TrainingLog(path)))
    assert all(
        array.base is not None and not array.flags.writeable for array in record.features.values()
    )


def test_a_log_is_read_as_it_is_asked_for(path: Path) -> None:
    path.write_bytes(LLVMS + b"nonsense\n")
    log = TrainingLog(path)
    records = iter(log)
    assert log.torn == ""  # before its end is read
    assert [next(records).observation, next(records).observation] == [0, 1]
    with pytest.raises(CorruptError, match="expected a line of JSON"):
        next(records)


def header(*specs: dict[str, Any], **more: Any) -> str:
    """A header of float scalars "x", but for what these specs say."""
    features = [{"name": "x", "type": "float", "shape": [], **spec} for spec in specs]
    return json.dumps({"features": features, **more}) + "\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "found the end of the file"),
        ('{"features":', "found the end of the file"),
        ("hello\n", "expected a line of JSON"),
        ("[1]\n", "expected an object of JSON, found list"),
        ('{"context":"f"}\n', "expected a header"),
        ('{"features":[]}\n', "expected at least one feature"),
        ('{"features":[1]}\n', "expected a tensor's spec, found 1"),
        (header({"name": None}), "expected a tensor's name, found None"),
        (header({"type": "char"}), '"x": expected a type'),
        (header({"type": ["float"]}), '"x": expected a type'),
        (header({"type": "uint8_t", "dtype": "float16"}), '"x": expected a type'),
        (header({"shape": [-1]}), '"x": expected a shape'),
        (header({"shape": [True]}), '"x": expected a shape'),
        (header({"shape": [1] * 9}), '"x": expected a shape'),
        (header({"shape": [0, 1 << 60]}), "fits an address space"),
        (header({}, decision=1), 'text as the "decision"'),
        (header({}, {}, {"name": "a"}), "expected names that differ, found x, x"),
        ("[" * 100_000 + "\n", "expected a line of JSON"),
        ('{"features":' + "1" * 10_000 + "}\n", "expected a line of JSON"),
        (" " * (LINE_BYTES + 1), f"found one of more than {LINE_BYTES} bytes"),
    ],
)
def test_what_is_no_log_is_refused(path: Path, text: str, why: str) -> None:
    path.write_text(text)
    with pytest.raises(CorruptError, match=why) as raised:
        TrainingLog(path)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    ("tail", "why"),
    [
        (b'{"observation":"2"}\n', "expected the number of an observation, found '2'"),
        (b'{"observation":9223372036854775808}\n', "expected the number of an observation"),
        (b'{"outcome":2}\n', "expected an observation"),
        (b'{"context":2}\n', "expected an observation"),
        (b'{"observation":2}\n' + bytes(25), "instead of the newline"),
        (
            b'{"observation":2}\n' + bytes(24) + b'\n{"outcome":1}\n',
            "the score of the observation before",
        ),
        (
            b'{"observation":2}\n' + bytes(24) + b'\n{"outcome":2}\n' + bytes(9),
            "instead of the newline",
        ),
    ],
)
def test_what_follows_is_checked(path: Path, tail: bytes, why: str) -> None:
    path.write_bytes(LLVMS + tail)
    with pytest.raises(CorruptError, match=why):
        list(TrainingLog(path))


def test_sizes_are_checked_before_memory_is_taken(path: Path) -> None:
    path.write_text(
        '{"features":[{"name":"x","type":"float","shape":[288230376151711744]}]}\n'
        '{"observation":0}\n1234\n'
    )
    log = TrainingLog(path)
    assert list(log) == [] and "cut off" in log.torn


def test_a_log_that_is_cut_anywhere_gives_what_was_whole(path: Path) -> None:
    path.write_bytes(LLVMS)
    whole = [r.features["callees"].item() for r in TrainingLog(path)]
    header = LLVMS.index(b"\n") + 1
    ends = {
        header,
        LLVMS.index(b'{"observation":0}'),
        LLVMS.index(b'{"observation":1}'),
        len(LLVMS),
    }
    for cut in range(len(LLVMS) + 1):
        path.write_bytes(LLVMS[:cut])
        if cut < header:
            with pytest.raises(CorruptError):
                TrainingLog(path)
            continue
        log = TrainingLog(path)
        found = [r.features["callees"].item() for r in log]
        assert found == whole[: len(found)]
        assert bool(log.torn) == (cut not in ends), cut
        assert len(found) == (cut >= LLVMS.index(b'{"observation":1}')) + (cut == len(LLVMS))


ARRAYS = st.sampled_from(NAMED_DTYPES).flatmap(
    lambda dtype: npst.arrays(
        dtype, npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3)
    )
)
NAMES = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=5
)
RECORDS = st.tuples(
    st.dictionaries(NAMES, ARRAYS, max_size=4),
    st.one_of(st.none(), st.text(max_size=8)),
    st.dictionaries(NAMES, ARRAYS, min_size=1, max_size=2),
    st.one_of(st.none(), ARRAYS),
    st.sampled_from(["", "a.c"]),
)
quickly = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
fresh = itertools.count()


@given(st.lists(RECORDS, min_size=1, max_size=5))
@quickly
def test_what_is_written_is_read(tmp_path: Path, records: list[Any]) -> None:
    path = tmp_path / f"log{next(fresh)}-"
    with LogWriter(path, warn=pytest.fail) as log:
        for i, (features, context, advice, reward, label) in enumerate(records):
            question = {
                **features,
                "#": np.int64(i),
                **({} if context is None else {"context": context}),
            }
            log.write(question, advice, reward=reward, label=label)
    found = {int(r.features["#"]): r for file in log.paths for r in TrainingLog(file)}
    assert len(found) == log.recorded == len(records)
    for i, (features, context, advice, reward, label) in enumerate(records):
        record = found[i]
        assert (record.label, record.question.get("context")) == (label, context)
        expected = {**features, "#": np.array(i)}
        for one, other in ((expected, record.features), (advice, record.advice)):
            assert list(one) == list(other) or one.keys() == other.keys()
            for name, value in one.items():
                assert value.dtype == other[name].dtype and value.shape == other[name].shape
                assert value.tobytes() == other[name].tobytes()
        assert (record.score is None) == (reward is None)
        assert reward is None or (
            record.score is not None and record.score.tobytes() == reward.tobytes()
        )
