"""Training logs as stacked arrays."""

from __future__ import annotations

import json
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from support.values import DTYPES as DTYPES_OF_ALL

from shmbridge.errors import CorruptError, InvalidError, MismatchError
from shmbridge.logs import Dataset, LogWriter, TrainingLog

# ---- ml-compiler-opt's log_reader_test, in our words ----


def spec(name: str, kind: str, shape: list[int]) -> dict[str, Any]:
    return {"name": name, "port": 0, "shape": shape, "type": kind}


HEADER = {
    "features": [spec("tensor_name2", "float", [2, 3]), spec("tensor_name1", "int64_t", [3, 1])],
    "score": spec("reward", "float", [1]),
}


def example(contexts: int) -> bytes:
    """The file that its tests read: two observations a context, which count up."""
    floats, integers, score = np.arange(1, 7) / 10, np.arange(1, 4), 1.2
    lines = [json.dumps(HEADER).encode()]
    for context in range(contexts):
        floats, integers = floats + 10 * context, integers + 10 * context
        lines.append(json.dumps({"context": f"context_nr_{context}"}).encode())
        for number in range(2):
            lines.append(b'{"observation": %d}' % number)
            lines.append(floats.astype("f4").tobytes() + integers.astype("i8").tobytes())
            lines.append(b'{"outcome": %d}' % number)
            lines.append(struct.pack("f", score))
            if number == 0:
                floats, integers, score = floats + 1, integers + 1, score + 1
    return b"\n".join(lines) + b"\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.tlog"


def test_records_can_be_pickled(path: Path) -> None:
    path.write_bytes(example(1))
    record = next(iter(TrainingLog(path)))
    again = pickle.loads(pickle.dumps(record))
    assert again.layout == record.layout
    np.testing.assert_array_equal(again.features["tensor_name2"], record.features["tensor_name2"])


@pytest.mark.parametrize(
    "old, new, why",
    [
        (b'{"observation": 1}', b'{"observation"; 1}', "expected a line of JSON"),
        (b'{"observation": 1}', b'{"observation": x}', "expected a line of JSON"),
        (b'{"outcome": 1}', b'{"outcome": 0}', 'expected {"outcome":1}'),
        (b'{"outcome": 1}', b'{"context":"c"}', 'expected {"outcome":1}'),
    ],
)
def test_the_place_of_an_error_is_told(path: Path, old: bytes, new: bytes, why: str) -> None:
    data = example(1)
    path.write_bytes(data.replace(old, new))
    place = rf"{path}, byte {data.index(old)}: {why}"
    with pytest.raises(CorruptError, match=place):
        list(TrainingLog(path))
    with pytest.raises(CorruptError, match=place):
        Dataset(path)


def test_a_cut_is_logged_with_its_place(path: Path, caplog: Any) -> None:
    data = example(1)
    path.write_bytes(data[:-3])
    dataset = Dataset(path)
    assert len(dataset) == len(list(TrainingLog(path))) == 1
    assert [record.getMessage() for record in caplog.records] == dataset.torn * 2
    assert dataset.torn == [
        f"{path}: the last tensors, at byte {len(data) - 5}, are cut off: what came before them "
        "was read"
    ]


# ---- Stacked ----


def write(path: Path, count: int, *, contexts: int = 0, **options: Any) -> None:
    with LogWriter(path, warn=pytest.fail) as log:
        for i in range(count):
            features: dict[str, Any] = {"x": np.full((2, 3), i, np.float32), "n": np.int64(i)}
            if contexts:
                features["context"] = f"f{i % contexts}"
            log.write(features, i % 7, **{name: each(i) for name, each in options.items()})


@pytest.mark.parametrize("rewards", [{}, {"reward": np.float32}])
def test_lines_of_records_that_are_alike_are_not_parsed_one_by_one(
    path: Path, monkeypatch: Any, rewards: dict[str, Any]
) -> None:
    write(path, 12345, **rewards)
    data = path.read_bytes().replace(b'{"observation":5000}', b'{"observation": 5000}')
    path.write_bytes(data.replace(b'{"observation":7000}', b'{"context":"f"}\n{"observation":0}'))
    numbers = [*range(7000), 0, *range(7001, 12345)]
    if rewards:
        path.write_bytes(path.read_bytes().replace(b'{"outcome":7000}', b'{"outcome":0}'))
    parsed: list[Any] = []
    loads = json.loads
    with monkeypatch.context() as patch:
        patch.setattr(json, "loads", lambda text: parsed.append(text) or loads(text))
        columns = Dataset(path).columns()
    assert len(parsed) < 100
    np.testing.assert_array_equal(columns.features["n"], np.arange(12345))
    np.testing.assert_array_equal(columns.observation, numbers)
    assert columns.context.tolist() == [None] * 7000 + ["f"] * 5345


@pytest.mark.parametrize(
    "rows",
    [
        slice(5, 900, 7),
        [3],
        [],
        [700, 2, 2, 999, 0],
        np.arange(1000) % 3 == 0,
        slice(None, None, -1),
    ],
    ids=repr,
)
def test_rows_come_in_the_order_that_is_asked_for(path: Path, rows: Any) -> None:
    write(path, 1000)
    found = Dataset(path).columns(rows).features
    wanted = np.arange(1000)[rows if len(np.shape(rows)) == 0 or len(rows) else slice(0)]
    np.testing.assert_array_equal(found["n"], wanted)
    np.testing.assert_array_equal(found["x"][:, 0, 0], wanted)
    assert all(values.flags.writeable and values.flags.aligned for values in found.values())


def test_rows_that_are_not_there_are_index_errors(path: Path) -> None:
    write(path, 10)
    dataset = Dataset(path)
    assert dataset.columns([-1]).features["n"] == 9
    for row in (10, -11):
        with pytest.raises(IndexError):
            dataset.columns([row, row] if row > 0 else [0, row])


def test_several_logs_are_one(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.tlog" for i in range(3)]
    for i, path in enumerate(paths):
        write(path, 5 + i, contexts=2)
    dataset = Dataset(paths)
    columns = dataset.columns()
    assert columns.file.tolist() == [0] * 5 + [1] * 6 + [2] * 7
    assert columns.features["n"].tolist() == [*range(5), *range(6), *range(7)]
    found = dataset.columns([17, 0, 7, 6])
    assert (found.file.tolist(), found.features["n"].tolist()) == ([2, 0, 1, 1], [6, 0, 2, 1])


def test_logs_of_other_layouts_are_refused_with_both(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    write(a, 1)
    with LogWriter(b) as log:
        log.write({"y": np.zeros(3)}, 1)
    with pytest.raises(MismatchError, match=r"x: float32\[2, 3\].*found features y: float64\[3\]"):
        Dataset([a, b])
    a.write_bytes(a.read_bytes() + b.read_bytes())
    with pytest.raises(MismatchError, match="expected what"):
        Dataset(a)
    with pytest.raises(InvalidError):
        Dataset([])


def test_a_header_alone_is_a_dataset_of_no_rows(path: Path) -> None:
    path.write_text(json.dumps(HEADER) + "\n")
    dataset = Dataset(path)
    assert len(dataset) == 0
    assert dataset.columns().features["tensor_name2"].shape == (0, 2, 3)


def test_a_log_that_has_become_shorter_is_an_error(path: Path) -> None:
    write(path, 100)
    dataset = Dataset(path)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(CorruptError, match=rf"{path}, byte \d+: expected \d+ bytes"):
        dataset.columns()


def test_what_is_appended_later_is_not_in_it(path: Path) -> None:
    write(path, 3)
    dataset = Dataset(path)
    path.write_bytes(path.read_bytes() + b'{"observation":3}\n' + bytes(40) + b"\n")
    assert (len(dataset), len(Dataset(path))) == (3, 4)


def test_reads_larger_than_a_chunk_are_split(path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("shmbridge.logs._dataset.CHUNK", 200)
    write(path, 300)
    assert Dataset(path).columns().features["n"].tolist() == [*range(300)]


DTYPES = st.sampled_from(DTYPES_OF_ALL)
SHAPES = npst.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3)


@given(data=st.data())
@settings(max_examples=60)
def test_any_rows_of_any_log_are_what_iteration_gives(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("logs")
    names = data.draw(st.lists(st.text("ab", min_size=1), min_size=1, max_size=3, unique=True))
    specs = {name: (data.draw(DTYPES), data.draw(SHAPES)) for name in names}
    random = np.random.default_rng(data.draw(st.integers(0, 100)))
    paths = [folder / f"{i}" for i in range(data.draw(st.integers(1, 2)))]
    for path in paths:
        with LogWriter(path, warn=pytest.fail) as log:
            for _ in range(data.draw(st.integers(1, 30))):
                features: dict[str, Any] = {
                    name: random.integers(0, 2, shape).astype(dtype)
                    for name, (dtype, shape) in specs.items()
                }
                context = data.draw(st.sampled_from(["", "f", "longer name"]))
                reward = np.float32(random.random())
                log.write({**features, "context": context}, random.integers(9), reward=reward)
    records = [record for path in paths for record in TrainingLog(path)]
    dataset = Dataset(paths)
    assert len(dataset) == len(records)
    rows = data.draw(st.lists(st.integers(0, len(records) - 1), max_size=40))
    found = dataset.columns(rows)
    for i, row in enumerate(rows):
        record = records[row]
        assert (found.context[i], found.observation[i]) == (record.context, record.observation)
        for name, value in record.features.items():
            np.testing.assert_array_equal(found.features[name][i], value)
        np.testing.assert_array_equal(found.advice["advice"][i], record.advice["advice"])
        np.testing.assert_array_equal(found.score[i], record.score)


def test_it_can_be_pickled(path: Path) -> None:
    write(path, 20, reward=np.float32)
    rows = pickle.loads(pickle.dumps(Dataset(path))).columns([9, 1])
    assert (rows.features["n"].tolist(), rows.score.tolist()) == ([9, 1], [9.0, 1.0])


def test_a_log_larger_than_memory_is_read_in_pieces(path: Path, python: Any) -> None:
    with LogWriter(path) as log:
        for i in range(150):  # 150 MB
            log.write({"x": np.full(1 << 18, i, np.float32)}, i)
    reader = python(
        """
        import resource, sys
        import numpy as np
        from shmbridge.logs import Dataset

        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (80 << 20),) * 2)
        dataset = Dataset(sys.argv[1])
        try:
            dataset.columns()
        except MemoryError:
            print("too large")
        pieces = (dataset.columns(slice(i, i + 4)) for i in range(0, len(dataset), 4))
        print(sum(int(piece.features["x"][:, -1].sum()) for piece in pieces))
        """,
        path,
    )
    assert reader.end() == (0, f"too large\n{sum(range(150))}")
