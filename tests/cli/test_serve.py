"""shmbridge serve with a Python function."""

import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest
from support.cli import SHMBRIDGE as AS_MODULE
from support.cli import X, evaluate, refused
from support.processes import until
from support.run import SHMBRIDGE

import shmbridge
from shmbridge._bridge import overview

# ---- serve --python ----


def test_serve_answers_with_a_python_function_and_says_where(serve, name):
    serving = serve(name, "--python", "models:total")
    assert evaluate(name, x=X) == 6.0
    with shmbridge.connect(name) as runner, pytest.raises(shmbridge.InexactError, match="6 is"):
        runner.evaluate({"x": X}, dtype="bool")
    said = serving.end()
    assert f"shm://{name}" in said and "shmb_open" in said and "SHMBRIDGE_URL" in said
    assert "2 requests, 1 errors" in said


@pytest.mark.parametrize(
    "model, error", [("broken", "ValueError: no advice for you"), ("large", "advice")]
)
def test_serve_tells_the_runner_and_the_terminal_of_errors(serve, name, model, error):
    serving = serve(name, "--python", f"models:{model}")
    for _ in range(2):
        with pytest.raises(shmbridge.ShmbridgeError, match=error):
            evaluate(name, x=X)
    said = serving.end()
    assert "2 requests, 2 errors" in said
    assert (
        said.count("sent to the runner") == 1
        and "Traceback" not in said
        and "-v shows where" in said
    )


def test_serve_shows_a_traceback_when_it_is_verbose(serve, name):
    serving = serve(name, "--python", "models:broken", "-v")
    for _ in range(2):
        with pytest.raises(shmbridge.ModelError):
            evaluate(name, x=X)
    said = serving.end()
    assert said.count("Traceback") == 1 and "models.py" in said and "in broken" in said


@pytest.mark.parametrize("verbose", [[], ["-v"]])
def test_serve_escapes_control_characters_of_a_compiler(serve, name, verbose):
    serving = serve(name, "--python", "models:repeats", *verbose)
    with pytest.raises(shmbridge.ModelError):
        evaluate(name, x="\x1b[31mred\x9b0m\nno more")
    assert r"ValueError: \x1b[31mred\x9b0m\nno more" in serving.end()


@pytest.mark.parametrize("program", [[SHMBRIDGE], AS_MODULE], ids=["launcher", "module"])
def test_serve_and_what_a_model_starts_print_nowhere_if_stdout_is_closed(program, where, name):
    (where / "prints.py").write_text("import os\ndef says(_): return os.system('echo hello')\n")
    words = [*program, "serve", name, "--python", "prints:says", "--request-bytes", "64K"]
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *words]
    with subprocess.Popen(closed, cwd=where, stderr=subprocess.PIPE) as serving:
        try:
            with shmbridge.connect(name, connect_timeout=60) as runner:
                assert runner.evaluate({"x": X}) == 0
        finally:
            serving.terminate()
        assert (serving.communicate(timeout=60), serving.returncode) == ((None, b""), 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_serve_leaves_nothing_when_a_signal_ends_it(serve, name, number):
    serving = serve(name, "--python", "models:total")
    (info,) = [bridge for bridge in overview.bridges() if bridge.name == name]
    with shmbridge.connect(name) as runner:
        runner.evaluate({"x": X})
        assert "1 requests" in serving.end(number)
        with pytest.raises(shmbridge.ClosedError):
            runner.evaluate({"x": X})
    assert not [file for file in os.listdir("/dev/shm") if info.session in file or name in file]


def test_serve_ends_after_the_question_under_way_has_its_answer(serve, name, where, in_thread):
    serving = serve(name, "--python", "models:slow")
    call = in_thread(partial(evaluate, name, x=X))
    until((where / "asked").exists)
    serving.terminate()
    assert call.result() == 7
    assert "1 requests, 0 errors" in serving.end()


def test_a_second_signal_ends_serve_at_once(serve, name, where, in_thread):
    serving = serve(name, "--python", "models:stuck")
    call = in_thread(partial(evaluate, name, x=X))
    until((where / "asked").exists)
    serving.terminate()
    time.sleep(0.5)  # two signals at once are one
    serving.end()
    with pytest.raises(shmbridge.ShmbridgeError):
        call.result()


def test_serve_ends_when_idle(serve, name):
    serving = serve(name, "--python", "models:total", "--until-idle", 0.3)
    assert serving.wait(20) == 0
    assert "0 requests, 0 errors" in serving.end()


def test_serve_takes_sizes_with_letters(serve, name):
    sizes = ("--request-bytes", "128K", "--advice-bytes", 4096)
    serve(f"{name}?slots=4&wait=block", "--python", "models:total", *sizes)
    (info,) = [bridge for bridge in overview.bridges() if bridge.name == name]
    assert (info.request_bytes, info.advice_bytes) == (128 << 10, 4096)
    assert evaluate(name, x=X) == 6.0


@pytest.mark.parametrize("arguments, message", [
    (["n"], "expected one model"),
    (["n", "--python", "models:total", "--onnx", "models.py"], "expected one model"),
    (["n", "--onnx", "nowhere.onnx"], "does not exist"),
    (["n", "--python", "models:total", "--max-batch", "0"], "not in the range"),
    (["n", "--onnx", "models.py", "--max-batch", "2"], "expected --python"),
    (["n", "--python", "models:total", "--request-bytes", "many"], "a number of bytes"),
    (["n", "--python", "models:total", "--until-idle", "-1"], "expected seconds"),
])  # fmt: skip
def test_serve_refuses_what_makes_no_sense(where, arguments, message):
    assert message in " ".join(refused(2, "serve", *arguments, cwd=where).split())


@pytest.mark.parametrize("arguments, message", [
    (["no/name", "--python", "models:total"], "is not a bridge name"),
    (["n", "--python", "models"], "MODULE:FUNCTION"),
    (["n", "--python", "models:nothing"], "has no attribute 'nothing'"),
    (["n", "--python", "models:total", "--record", "nowhere/log"], "No such file or directory"),
    (["n", "--onnx", "models.py"], "models.py: Load model from"),
    (["n", "--python", "models:total", "--request-bytes", "900G"], "/dev/shm"),
    (["n", "--python", "models:total", "--channels", "300"], "has 300 channels"),
])  # fmt: skip
def test_serve_says_in_one_line_why_it_cannot(where, arguments, message):
    if "--onnx" in arguments:
        pytest.importorskip("onnxruntime")
    assert message in refused(1, "serve", *arguments, cwd=where)


def test_a_policy_that_is_edited_within_a_second_is_read_anew(tmp_path):
    (tmp_path / "policy.py").write_text("def advise(request): return 4\n")
    code = "from shmbridge.cli._model import load_python; print(load_python('policy:advise')({}))"
    env = {key: os.environ[key] for key in os.environ if key != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", code]
    for _ in range(2):
        done = subprocess.run(command, cwd=tmp_path, env=env, stdout=-1, check=True)
        assert done.stdout == b"4\n"
    assert not (tmp_path / "__pycache__").exists()
