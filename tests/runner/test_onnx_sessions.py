"""onnx:// in many threads, in forked children, and stopped in the middle."""

import os
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the models are made with it")
pytest.importorskip("onnxruntime", reason="it is what runs them")

from support import onnx_models as models  # noqa: E402
from support.processes import printed, ticks_of, until  # noqa: E402

from shmbridge import DeadlineError, connect  # noqa: E402

CROSS = Path(__file__).parents[1] / "cross"
X = np.arange(8, dtype=np.float32)
UNIT = np.eye(64, dtype=np.float32)
ENDLESS, FEW = np.array(1 << 40), np.array(3)
INTERRUPTED, TIMEOUT = "13 ", "12 "


def test_a_file_that_was_replaced_is_another_model(tmp_path):
    file = models.two_minus(tmp_path / "model.onnx")
    with connect(f"onnx://{file}") as before:
        models.perceptron(tmp_path / "new.onnx")
        os.replace(tmp_path / "new.onnx", file)
        with connect(f"onnx://{file}") as after:
            assert after.evaluate({"x": np.ones((2, 30), np.float32)}).shape == (2, 1)
            assert before.evaluate({"x": X}) == 0


def test_eight_compiler_threads_ask_models_of_one_file(tmp_path, c_program):
    program = c_program(CROSS / "onnx_threads.c")
    file = models.two_minus(tmp_path / "model.onnx")
    ended = printed([program, f"onnx://{file}", "8", "2000"], timeout=120)
    assert (ended.returncode, ended.stdout) == (0, "ok\n"), ended.stderr


# ---- Stopped ----


def test_a_deadline_ends_a_run_and_the_next_one_is_whole(tmp_path):
    with connect(f"onnx://{models.loop(tmp_path / 'model.onnx')}", deadline=1) as runner:
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(DeadlineError, match="of 1 s"):
                runner.evaluate({"turns": ENDLESS, "x": UNIT})
            assert time.monotonic() - began < 60
            runner.set_deadline(1)  # asks again
            assert np.array_equal(runner.evaluate({"turns": FEW, "x": UNIT * 2}), UNIT * 2)


@pytest.mark.parametrize("options", ["", "?retries=1"])
def test_an_interrupt_from_a_signal_handler_ends_a_run_and_the_next_one_is_whole(
    options, tmp_path, c_runner
):
    runner = c_runner(f"onnx://{models.loop(tmp_path / 'model.onnx')}{options}")
    short = tmp_path / "x"
    short.write_bytes(UNIT.tobytes())

    def fill(turns):
        runner.do("feature turns 5 0", turns.tobytes().hex())
        runner.do(f"feature x 11 2 64 64 @{short}")

    for _ in range(3):
        fill(ENDLESS)
        runner.ask("evaluate 0")
        busy(runner.pid)
        runner.send_signal(2)
        assert runner.answer().startswith(INTERRUPTED)
        fill(FEW)
        assert runner.do("evaluate 0").endswith(UNIT.tobytes().hex())


def busy(pid):
    """Returns when that process has computed for a while."""
    before = ticks_of(pid)
    until(lambda: ticks_of(pid) >= before + 5, 60)


# ---- Fork ----


def test_a_forked_child_closes_what_it_inherited_and_opens_its_own(tmp_path, python):
    code = """
        import os, sys
        import numpy as np
        from shmbridge import DeadlineError, ForkedError, connect

        def stops(url):
            with connect(url, deadline=0.05) as runner:
                try:
                    runner.evaluate({"turns": np.array(1 << 40), "x": np.eye(64, dtype=np.float32)})
                except DeadlineError:
                    return True

        url, loop, x = *sys.argv[1:], np.arange(8, dtype=np.float32)
        assert stops(loop)
        runner = connect(url, deadline=10)
        assert runner.evaluate({"x": x}) == 0
        child = os.fork()
        if not child:
            try:
                runner.evaluate({"x": x})
            except ForkedError:
                runner.close()
                with connect(url, deadline=10) as own:
                    os._exit(0 if own.evaluate({"x": np.roll(x, 2)}) == 2 and stops(loop) else 1)
            os._exit(2)
        print(os.waitpid(child, 0)[1], runner.evaluate({"x": np.roll(x, 6)}))
    """
    file, loop = models.two_minus(tmp_path / "model.onnx"), models.loop(tmp_path / "loop.onnx")
    for threads in (1, 2):
        assert python(code, f"onnx://{file}?threads={threads}", f"onnx://{loop}").line() == "0 6"
