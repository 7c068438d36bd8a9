"""Training logs: nothing that is read can do harm."""

import itertools
import json
import pickle
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from support.values import NAMED_DTYPES

from shmbridge.errors import CorruptError
from shmbridge.logs import LogWriter, TrainingLog
from shmbridge.logs._writer import LINE_BYTES

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


def test_a_log_of_clangs_has_its_advice_last(path):
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


def test_what_llvm_writes_to_a_channel_has_no_advice(path):
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


def test_logs_in_a_row_are_one(write, path):
    first, second = write(({"x": np.zeros(1), "context": "f"}, 1), ({"y": np.zeros(2)}, 2))
    path.write_bytes(first.read_bytes() + second.read_bytes())
    assert [(r.context, r.question.keys()) for r in TrainingLog(path)] == [
        ("f", {"x", "context"}),
        (None, {"y"}),
    ]


def test_records_can_be_pickled(path):
    path.write_bytes(LLVMS)
    record = next(iter(TrainingLog(path)))
    again = pickle.loads(pickle.dumps(record))
    assert again.layout == record.layout
    np.testing.assert_array_equal(again.features["w"], record.features["w"])


def test_the_place_of_an_error_and_of_a_cut_is_told(path, caplog):
    at = LLVMS.index(b'{"outcome":1}')
    path.write_bytes(LLVMS.replace(b'{"outcome":1}', b'{"outcome":0}'))
    with pytest.raises(CorruptError, match=rf'{path}, byte {at}: expected {{"outcome":1}}'):
        list(TrainingLog(path))
    path.write_bytes(LLVMS[:-3])
    log = TrainingLog(path)
    assert len(list(log)) == 1
    cut = f"byte {len(LLVMS) - 9}, are cut off: what came before them was read"
    assert log.torn == caplog.messages[0] == f"{path}: the last tensors, at {cut}"


def test_arrays_are_views_of_what_was_read(path):
    path.write_bytes(LLVMS)
    record = next(iter(TrainingLog(path)))
    assert all(
        array.base is not None and not array.flags.writeable for array in record.features.values()
    )


def test_a_log_is_read_as_it_is_asked_for(path):
    path.write_bytes(LLVMS + b"nonsense\n")
    log = TrainingLog(path)
    records = iter(log)
    assert log.torn == ""  # before its end is read
    assert [next(records).observation, next(records).observation] == [0, 1]
    with pytest.raises(CorruptError, match="expected a line of JSON"):
        next(records)


def header(*specs, **more):
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
def test_what_is_no_log_is_refused(path, text, why):
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
def test_what_follows_is_checked(path, tail, why):
    path.write_bytes(LLVMS + tail)
    with pytest.raises(CorruptError, match=why):
        list(TrainingLog(path))


def test_sizes_are_checked_before_memory_is_taken(path):
    path.write_text(
        '{"features":[{"name":"x","type":"float","shape":[288230376151711744]}]}\n'
        '{"observation":0}\n1234\n'
    )
    log = TrainingLog(path)
    assert list(log) == [] and "cut off" in log.torn


def test_a_log_that_is_cut_anywhere_gives_what_was_whole(path):
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
def test_what_is_written_is_read(tmp_path, records):
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
