"""The command line: what it prints, what it refuses, and that nothing is left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shmbridge
from shmbridge.demo import model as toy

SHMBRIDGE = [sys.executable, "-m", "shmbridge.cli"]
MODELS = """
import time
import numpy as np

def total(request):
    return float(np.sum(request["x"]))

def totals(batch):
    return batch["x"].sum(axis=1)

def rows(batch):
    return {"rows": np.full(len(batch["x"]), len(batch["x"])), "total": batch["x"].sum(axis=1)}

def several(request):
    return {"first": int(request["x"][0]), "all": request["x"] * 2}

def broken(request):
    raise ValueError("no advice for you")

def large(request):
    return np.zeros(1 << 20)

def slow(request):
    time.sleep(1)
    return 7

answer = 42
"""


@pytest.fixture
def where(tmp_path: Path) -> Path:
    """A directory that has models.py."""
    (tmp_path / "models.py").write_text(MODELS)
    return tmp_path


@pytest.fixture
def name() -> Iterator[str]:
    """A bridge's name; afterwards nothing of it may be left."""
    bridge = f"cli-{os.getpid()}-{time.monotonic_ns()}"
    yield bridge
    assert not Path("/dev/shm", f"shmb.{bridge}").exists()


def run(
    *arguments: object, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    command = [*SHMBRIDGE, *map(str, arguments)]
    env = {**os.environ, **environment}
    return subprocess.run(
        command, cwd=cwd or "/", env=env, text=True, capture_output=True, check=False, timeout=120
    )


def refused(status: int, *arguments: object, cwd: Path | None = None) -> str:
    """What the command says on stderr; fails unless it ends with that status and without a traceback."""
    done = run(*arguments, cwd=cwd)
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    said = done.stderr.strip()
    assert said.splitlines()[-1].startswith("Error: ")
    assert status != 1 or len(said.splitlines()) == 1
    return said


class Serving:
    """`shmbridge serve`, while it runs."""

    def __init__(self, *arguments: object, cwd: Path) -> None:
        small = ("--channels", "4", "--request-bytes", "64K")
        command = [*SHMBRIDGE, "serve", *small, *map(str, arguments)]
        self.process = subprocess.Popen(
            command, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert self.process.stdout
        self.said = ""
        while "Python" not in self.said:  # the last line of the introduction
            line = self.process.stdout.readline()
            assert line, self.said
            self.said += line

    def end(self, number: int = signal.SIGTERM) -> str:
        """Ends it; returns all that it has said. Fails unless it ends with status 0."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.said += self.process.communicate(timeout=20)[0]
        assert self.process.returncode == 0, self.said
        return self.said


@pytest.fixture
def serve(where: Path, name: str) -> Iterator[Callable[..., Serving]]:
    """Starts `shmbridge serve` in the directory of models.py; what still runs is ended."""
    started: list[Serving] = []

    def start(*arguments: object) -> Serving:
        started.append(Serving(*arguments, cwd=where))
        return started[-1]

    yield start
    for serving in started:
        if serving.process.poll() is None:
            serving.end()


def onnx_file(path: Path, first: object = "batch", outputs: int = 1, dtype: str = "FLOAT") -> Path:
    """x [first, 3] -> y = x·w [first] and, with two outputs, double = 2x."""
    onnx = pytest.importorskip("onnx")
    kind = getattr(onnx.TensorProto, dtype)
    info, make = onnx.helper.make_tensor_value_info, onnx.helper.make_node
    weights = onnx.helper.make_tensor("w", kind, [3], [1, 10, 100])
    two = onnx.helper.make_tensor("two", kind, [], [2])
    nodes = [make("MatMul", ["x", "w"], ["y"]), make("Mul", ["x", "two"], ["double"])][:outputs]
    results = [info("y", kind, [first]), info("double", kind, [first, 3])][:outputs]
    graph = onnx.helper.make_graph(
        nodes, "g", [info("x", kind, [first, 3])], results, [weights, two]
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


def evaluate(name: str, **features: Any) -> Any:
    with shmbridge.connect(name) as runner:
        return runner.evaluate(features)


def together(name: str, questions: list[dict[str, Any]]) -> list[Any]:
    """The advice for several questions, asked by a runner each at about the same time."""
    answers: list[Any] = [None] * len(questions)
    barrier = threading.Barrier(len(questions))

    def ask(i: int) -> None:
        with shmbridge.connect(name) as runner:
            barrier.wait()
            answers[i] = runner.evaluate(questions[i])

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(questions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


X = np.array([1, 2, 3], np.float32)

# ---- main, config ----


def test_help_lists_the_commands() -> None:
    said = run("--help").stdout
    assert all(command in said for command in ("demo", "serve", "ls", "gc", "config"))


def test_version_is_the_librarys() -> None:
    assert run("--version").stdout.strip() == shmbridge.__version__
    assert run("config", "--version").stdout.strip() == shmbridge.__version__


def test_an_unknown_command_is_a_usage_error() -> None:
    assert "No such command" in refused(2, "serv")


def test_config_prints_one_line_for_each_option() -> None:
    lines = run("config", "--prefix", "--cflags", "--libs", "--cmakedir").stdout.splitlines()
    assert [line.partition("/")[0] for line in lines] == ["-I", "-L", "", ""]
    assert Path(lines[3], "include/shmbridge.h").is_file()


def test_config_alone_prints_everything() -> None:
    said = run("config").stdout
    assert all(
        f"{what}:" in said
        for what in ("cflags", "libs", "cmakedir", "pkgconfigdir", "prefix", "examples", "version")
    )


# ---- serve --python ----


def test_serve_says_where_to_connect(serve: Callable[..., Serving], name: str) -> None:
    said = serve(name, "--python", "models:total").end()
    assert f"shm://{name}" in said and "shmb_open" in said and "SHMBRIDGE_URL" in said


def test_serve_answers_with_a_python_function(serve: Callable[..., Serving], name: str) -> None:
    serving = serve(name, "--python", "models:total")
    assert evaluate(name, x=X) == 6.0
    assert "1 requests, 0 errors" in serving.end()


def test_serve_gives_several_advices_by_name(serve: Callable[..., Serving], name: str) -> None:
    serve(name, "--python", "models:several")
    advice = evaluate(name, x=X)
    assert (
        advice["first"] == 1
        and advice["all"].tolist() == [2, 4, 6]
        and advice["all"].dtype == np.float32
    )


def test_serve_batches_runners(serve: Callable[..., Serving], name: str) -> None:
    serve(name, "--python", "models:totals", "--max-batch", 3, "--max-wait", 0.2)
    assert together(name, [{"x": X + i} for i in range(3)]) == [6.0, 9.0, 12.0]


def test_serve_pads_every_batch(serve: Callable[..., Serving], name: str) -> None:
    serve(name, "--python", "models:rows", "--pad-to", 4)
    assert evaluate(name, x=X) == {"rows": 4, "total": 6.0}
    assert [a["rows"] for a in together(name, [{"x": X}, {"x": X}])] == [4, 4]


@pytest.mark.parametrize(
    "model, error", [("broken", "ValueError: no advice for you"), ("large", "advice")]
)
def test_serve_tells_the_runner_and_the_terminal_of_errors(
    serve: Callable[..., Serving], name: str, model: str, error: str
) -> None:
    serving = serve(name, "--python", f"models:{model}")
    for _ in range(2):
        with pytest.raises(shmbridge.ShmbridgeError, match=error):
            evaluate(name, x=X)
    said = serving.end()
    assert "2 requests, 2 errors" in said
    assert said.count("told to the runner") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_serve_leaves_nothing_when_a_signal_ends_it(
    serve: Callable[..., Serving], name: str, number: int
) -> None:
    serving = serve(name, "--python", "models:total")
    (info,) = [bridge for bridge in shmbridge.segment.bridges() if bridge.name == name]
    with shmbridge.connect(name) as runner:
        runner.evaluate({"x": X})
        assert "1 requests" in serving.end(number)
        with pytest.raises(shmbridge.ClosedError):
            runner.evaluate({"x": X})
    assert not [file for file in os.listdir("/dev/shm") if info.session in file or name in file]


def test_serve_ends_after_the_question_under_way_has_its_answer(
    serve: Callable[..., Serving], name: str
) -> None:
    serving = serve(name, "--python", "models:slow")
    threading.Timer(0.5, serving.process.terminate).start()
    assert evaluate(name, x=X) == 7
    assert "1 requests, 0 errors" in serving.end()


def test_a_second_signal_ends_serve_at_once(
    serve: Callable[..., Serving], name: str, where: Path
) -> None:
    (where / "stuck.py").write_text("import time\ndef model(request):\n    time.sleep(1000)\n")
    serving = serve(name, "--python", "stuck:model")
    for seconds in (0.5, 1):
        threading.Timer(seconds, serving.process.terminate).start()
    with pytest.raises(shmbridge.ShmbridgeError):
        evaluate(name, x=X)
    serving.end()


def test_serve_ends_when_idle(serve: Callable[..., Serving], name: str) -> None:
    serving = serve(name, "--python", "models:total", "--until-idle", 0.3)
    assert serving.process.wait(20) == 0
    assert "0 requests, 0 errors" in serving.end()


def test_serve_takes_sizes_with_letters(serve: Callable[..., Serving], name: str) -> None:
    serve(
        name,
        "--python",
        "models:total",
        "--request-bytes",
        "128K",
        "--advice-bytes",
        4096,
        "--slots",
        4,
        "--wait",
        "block",
    )
    (info,) = [bridge for bridge in shmbridge.segment.bridges() if bridge.name == name]
    assert (info.request_bytes, info.advice_bytes) == (128 << 10, 4096)
    assert evaluate(name, x=X) == 6.0


@pytest.mark.parametrize("arguments, message", [
    (["n"], "expected one model"),
    (["n", "--python", "models:total", "--onnx", "models.py"], "expected one model"),
    (["n", "--onnx", "nowhere.onnx"], "does not exist"),
    (["n", "--python", "models:total", "--request-bytes", "many"], "a number of bytes"),
    (["n", "--python", "models:total", "--slots", "3"], "'3' is not one of"),
    (["n", "--python", "models:total", "--channels", "300"], "not in the range"),
    (["n", "--python", "models:total", "--max-batch", "8", "--pad-to", "4"], "no larger"),
])  # fmt: skip
def test_serve_refuses_what_makes_no_sense(where: Path, arguments: list[str], message: str) -> None:
    assert message in " ".join(refused(2, "serve", *arguments, cwd=where).split())


@pytest.mark.parametrize("arguments, message", [
    (["no/name", "--python", "models:total"], "is no name of a bridge"),
    (["n", "--python", "models"], "MODULE:FUNCTION"),
    (["n", "--python", "nowhere:total"], "No module named 'nowhere'"),
    (["n", "--python", "models:nothing"], "has no attribute 'nothing'"),
    (["n", "--python", "models:answer"], "expected a function, found int"),
    (["n", "--python", "models:total", "--log", "nowhere/log"], "No such file or directory"),
    (["n", "--onnx", "models.py"], "expected a model that ONNX Runtime can load"),
    (["n", "--python", "models:total", "--request-bytes", "900G"], "/dev/shm"),
])  # fmt: skip
def test_serve_says_in_one_line_why_it_cannot(
    where: Path, arguments: list[str], message: str
) -> None:
    if "--onnx" in arguments:
        pytest.importorskip("onnxruntime")
    assert message in refused(1, "serve", *arguments, cwd=where)


def test_serve_names_the_line_of_a_module_that_fails(where: Path) -> None:
    (where / "bad.py").write_text("\n\n1 / 0\n")
    said = refused(1, "serve", "n", "--python", "bad:f", cwd=where)
    assert "ZeroDivisionError" in said and "bad.py:3" in said


def test_serve_refuses_the_name_of_a_live_host(
    serve: Callable[..., Serving], name: str, where: Path
) -> None:
    serving = serve(name, "--python", "models:total")
    assert f"process {serving.process.pid}" in refused(
        1, "serve", name, "--python", "models:total", cwd=where
    )
    assert evaluate(name, x=X) == 6.0


# ---- serve --log ----


def test_the_log_has_a_line_for_each_decision(
    serve: Callable[..., Serving], name: str, where: Path
) -> None:
    serving = serve(name, "--python", "models:several", "--log", "log.jsonl")
    before = time.time()
    evaluate(
        name, x=X, function="main", nan=np.float32("nan"), names=["a", "b"], rows=[[1], [2, 3]]
    )
    evaluate(name, x=np.zeros(1000, np.float32))
    serving.end()
    first, second = map(json.loads, (where / "log.jsonl").read_text().splitlines())
    assert first["features"] == {"x": [1, 2, 3], "function": "main", "nan": "nan", "names": ["a", "b"],
                                 "rows": {"values": [1, 2, 3], "offsets": [0, 1, 3]}}  # fmt: skip
    assert first["advice"] == {"first": 1, "all": [2, 4, 6]}
    assert before <= first["time"] <= second["time"] <= time.time()
    digest = second["features"]["x"]
    assert (digest["dtype"], digest["shape"], len(digest["sha256"])) == ("float32", [1000], 64)


def test_the_log_has_errors_and_splits_batches(
    serve: Callable[..., Serving], name: str, where: Path
) -> None:
    serve(name, "--python", "models:broken", "--log", "log.jsonl")
    with pytest.raises(shmbridge.ModelError):
        evaluate(name, x=X)
    other = f"{name}-batch"
    serving = serve(
        other,
        "--python",
        "models:totals",
        "--max-batch",
        2,
        "--max-wait",
        0.5,
        "--log",
        "batch.jsonl",
    )
    together(other, [{"x": X}, {"x": X + 1}])
    serving.end()
    (failed,) = map(json.loads, (where / "log.jsonl").read_text().splitlines())
    assert failed["error"] == "ValueError: no advice for you" and "advice" not in failed
    rows = list(map(json.loads, (where / "batch.jsonl").read_text().splitlines()))
    assert sorted((row["features"]["x"][0], row["advice"]["advice"]) for row in rows) == [
        (1, 6),
        (2, 9),
    ]


# ---- serve --onnx ----


def test_onnx_takes_a_request_without_the_batch_dim(
    serve: Callable[..., Serving], name: str, where: Path
) -> None:
    serving = serve(name, "--onnx", onnx_file(where / "m.onnx"))
    assert evaluate(name, x=X) == 321.0
    assert evaluate(name, x=X[None]).tolist() == [321.0]
    assert evaluate(name, x=np.stack([X, X])).tolist() == [321.0, 321.0]
    assert "x: float32[?, 3]" in serving.end()


def test_onnx_takes_a_first_dim_of_one(
    serve: Callable[..., Serving], name: str, where: Path
) -> None:
    serve(name, "--onnx", onnx_file(where / "m.onnx", first=1), "--threads", 2)
    assert evaluate(name, x=X) == 321.0
    assert evaluate(name, x=X[None]).tolist() == [321.0]


def test_onnx_gives_several_outputs_by_name(
    serve: Callable[..., Serving], name: str, where: Path
) -> None:
    serve(name, "--onnx", onnx_file(where / "m.onnx", outputs=2))
    advice = evaluate(name, x=X)
    assert advice["y"] == 321.0 and advice["double"].tolist() == [2, 4, 6]


def test_onnx_leaves_other_features_alone(
    serve: Callable[..., Serving], name: str, where: Path
) -> None:
    serve(name, "--onnx", onnx_file(where / "m.onnx"))
    assert evaluate(name, x=X, function="main") == 321.0


@pytest.mark.parametrize("features, found", [
    ({"x": X.astype(np.float64)}, r"x: float64\[3\]"),
    ({"x": np.zeros(4, np.float32)}, r"x: float32\[4\]"),
    ({"z": X}, r"z: float32\[3\]"),
    ({"x": "text"}, "x: str"),
])  # fmt: skip
def test_onnx_shows_both_sides_of_a_mismatch(
    serve: Callable[..., Serving], name: str, where: Path, features: dict[str, Any], found: str
) -> None:
    serve(name, "--onnx", onnx_file(where / "m.onnx"))
    with pytest.raises(
        shmbridge.ShmbridgeError, match=rf"expects x: float32\[\?, 3\]; found {found}"
    ):
        evaluate(name, **features)
    assert evaluate(name, x=X) == 321.0


def test_onnx_batches_runners_with_or_without_the_batch_dim(
    serve: Callable[..., Serving], name: str, where: Path
) -> None:
    serve(name, "--onnx", onnx_file(where / "m.onnx"), "--max-batch", 4, "--max-wait", 0.2)
    assert together(name, [{"x": X}, {"x": X * 2}, {"x": X[None]}]) == [321.0, 642.0, 321.0]


def test_padded_numbers_do_not_depend_on_the_company(
    serve: Callable[..., Serving], name: str, where: Path
) -> None:
    serve(name, "--onnx", onnx_file(where / "m.onnx", first=4), "--pad-to", 4, "--max-wait", 0.2)
    questions = [
        {"x": np.random.default_rng(i).normal(size=3).astype(np.float32)} for i in range(4)
    ]
    alone = [evaluate(name, **question) for question in questions]
    assert together(name, questions) == alone
    assert together(name, questions[:2]) == alone[:2]


def test_onnx_of_a_fixed_batch_must_be_padded_to_it(where: Path) -> None:
    said = refused(
        1, "serve", "n", "--onnx", onnx_file(where / "m.onnx", first=4), "--max-batch", 2
    )
    assert "takes no batches of up to 2" in said and "--pad-to 4" in said


def test_without_onnx_runtime_serve_says_what_to_install(where: Path) -> None:
    (where / "onnxruntime.py").write_text("raise ImportError('not installed')\n")
    done = run("serve", "n", "--onnx", "models.py", cwd=where, PYTHONPATH=str(where))
    assert (
        done.returncode == 1
        and "pip install 'shmbridge[onnx]'" in done.stderr
        and "Traceback" not in done.stderr
    )


# ---- ls, gc ----


def test_ls_shows_bridges_channels_and_rates(serve: Callable[..., Serving], name: str) -> None:
    serving = serve(name, "--python", "models:total")
    with shmbridge.connect(name) as runner:
        runner.evaluate({"x": X})
        said = run("ls", "--interval", 0.1).stdout
        assert (
            f"shm://{name}" in said and "alive" in said and "1 of 4" in said and "channel 0" in said
        )
        (shown,) = [
            b
            for b in json.loads(run("ls", "--json", "--interval", 0.1).stdout)
            if b["name"] == name
        ]
    assert (shown["alive"], shown["pid"], shown["served"], shown["rate"]) == (
        True,
        serving.process.pid,
        1,
        0,
    )
    assert [channel["state"] for channel in shown["channels"]] == [
        "attached",
        "free",
        "free",
        "free",
    ]
    assert shown["channels"][0]["pid"] == os.getpid()


def test_ls_measures_the_rate(serve: Callable[..., Serving], name: str) -> None:
    serve(name, "--python", "models:total")
    done = threading.Event()

    def ask() -> None:
        with shmbridge.connect(name) as runner:
            while not done.is_set():
                runner.evaluate({"x": X})

    asking = threading.Thread(target=ask)
    asking.start()
    (shown,) = [
        b for b in json.loads(run("ls", "--json", "--interval", 0.5).stdout) if b["name"] == name
    ]
    done.set()
    asking.join()
    assert shown["rate"] > 0 and shown["channels"][0]["rate"] > 0


def test_ls_watch_goes_on_until_ctrl_c(serve: Callable[..., Serving], name: str) -> None:
    serve(name, "--python", "models:total")
    watch = [*SHMBRIDGE, "ls", "--watch", "--json", "--interval", "0.1"]
    process = subprocess.Popen(
        watch, cwd="/", text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout
    assert all(name in process.stdout.readline() for _ in range(3))
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=20)[1] == ""
    assert process.returncode == 0


def test_gc_removes_what_a_killed_host_left_and_says_what(
    serve: Callable[..., Serving], name: str
) -> None:
    serving = serve(name, "--python", "models:total")
    living = serve(f"{name}-living", "--python", "models:total")
    serving.process.kill()
    serving.process.wait()
    (shown,) = [b for b in json.loads(run("ls", "--json").stdout) if b["name"] == name]
    assert not shown["alive"]
    said = run("gc").stdout
    assert f"removed /dev/shm/shmb.{name}: bridge {name}\n" in said
    assert not [
        file for file in os.listdir("/dev/shm") if name == file[5:] or shown["session"] in file
    ]
    assert evaluate(f"{name}-living", x=X) == 6.0
    living.end()


# ---- demo ----


def test_the_toy_model_and_its_onnx_file_agree(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(toy.onnx_bytes(), providers=["CPUExecutionProvider"])
    counts = np.random.default_rng(1).integers(0, 30, (500, 16)).astype(np.float32)
    advice = toy.inline(counts)
    assert session.run(None, {"features": counts})[0].tolist() == advice.tolist()
    assert advice.dtype == np.int64 and toy.inline(counts[0]).shape == ()


def test_the_toy_model_inlines_small_functions_alone() -> None:
    small, large = np.array([[1] + [1] + [0] * 14, [40] * 16], np.float32)
    assert toy.inline(small) == 1 and toy.inline(large) == 0


def test_the_onnx_file_written_by_hand_is_valid() -> None:
    onnx = pytest.importorskip("onnx")
    onnx.checker.check_model(onnx.load_from_string(toy.onnx_bytes()), full_check=True)


def test_demo_runs_to_the_end() -> None:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    done = run("demo", "--no-llvm")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "answered by the model, 0 by the heuristic" in done.stdout
    assert all(
        word in done.stdout
        for word in (
            "A toy",
            "p50",
            "p99",
            "ratio",
            "shared memory",
            "named pipes",
            "What to type next",
        )
    )


def test_demo_without_a_compiler_asks_from_python(tmp_path: Path) -> None:
    done = run("demo", "--no-llvm", PATH=str(tmp_path), CC="")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        "No C compiler" in done.stdout and "inline" in done.stdout and "named pipes" in done.stdout
    )


def test_demo_without_onnx_runtime_computes_with_numpy(tmp_path: Path) -> None:
    (tmp_path / "onnxruntime.py").write_text("raise ImportError('not installed')\n")
    done = run("demo", "--no-llvm", PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "computed by numpy" in done.stdout


@pytest.mark.slow
def test_demo_has_clang_compile_with_the_models_advice() -> None:
    if not (shutil.which("clang-22") and shutil.which("llvm-config-22")):
        pytest.skip("no clang-22 and llvm-22-dev")
    done = run("demo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "call sites" in done.stdout and "Object code" in done.stdout


def test_demo_leaves_nothing_when_it_is_ended() -> None:
    process = subprocess.Popen(
        [*SHMBRIDGE, "demo", "--no-llvm"], text=True, stdout=subprocess.PIPE, cwd="/"
    )
    assert process.stdout
    while "serve" not in process.stdout.readline():
        pass
    time.sleep(0.5)
    process.terminate()
    process.communicate(timeout=20)
    assert not [file for file in os.listdir("/dev/shm") if f"demo-{process.pid}" in file]
