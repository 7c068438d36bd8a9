"""ML-Compiler-Bridge's Python package, PyPI `compilerinterface`, as the host of our runners."""

import ctypes
import threading

import numpy as np
import pytest

from shmbridge import connect

Theirs = {"bitstream": "bytes", "json": "json"}
# What its test programs exchange: what is sent, the dtype wanted back, and the reply.
EXCHANGES = [
    (np.int32(11), np.int32, 12),
    (np.int64(1234567890), np.int64, ctypes.c_long(1234567891)),
    (np.float32(3.14), np.float32, 4.14),
    (np.float64(0.123456789123456789), np.float64, ctypes.c_double(1.123456789123456789)),
    (np.int8(ord("a")), np.int32, ord("b")),
    (np.bool_(True), np.bool_, False),
    (np.array([11, 22, 33], np.int32), np.int32, [12, 23, 34]),
    (np.array([123456780, 222, 333]), np.int64, [ctypes.c_long(123456780 + i) for i in range(3)]),
    (np.array([11.1, 22.2, 33.3], np.float32), np.float32, [1.11, 2.22, -3.33, 0.0]),
    (
        np.array([-1.1, -2.2, -3.3]),
        np.float64,
        list(map(ctypes.c_double, (1.1234567891234567, -1.12345678912345671))),
    ),
    (np.array([((i - 20) / 100) ** 2 for i in range(100)], np.float32), np.int32, 20),
]


def plain(reply):
    """A reply as numbers."""
    return (
        [plain(each) for each in reply]
        if isinstance(reply, list)
        else getattr(reply, "value", reply)
    )


class TheirHost(threading.Thread):
    """Their host, which answers the exchanges in order; .asked: what came, as it hands it out."""

    def __init__(self, path, serdes):
        from compilerinterface import PipeCompilerInterface

        super().__init__(daemon=True)
        self.interface, self.asked = PipeCompilerInterface(Theirs[serdes], str(path)), []
        self.start()

    def run(self):
        self.interface.reset_pipes()
        for _, _, reply in EXCHANGES:
            request = self.interface.evaluate()
            self.asked.append(request["x"] if isinstance(request, dict) else list(request[0]))
            self.interface.populate_buffer(reply)
        self.interface.evaluate("exit")

    def end(self):
        self.join(20)
        assert not self.is_alive()
        self.interface.close_pipes()
        assert len(self.asked) == len(EXCHANGES)
        for (sent, _, _), found in zip(EXCHANGES, self.asked, strict=True):
            assert np.allclose(
                np.ravel(found).astype(float), np.ravel(sent).astype(float), rtol=0, atol=1e-5
            )


@pytest.fixture(params=["bitstream", "json"])
def serdes(request):
    return request.param


@pytest.fixture
def theirs(tmp_path, serdes):
    pytest.importorskip("compilerinterface")
    return TheirHost(tmp_path / "p", serdes)


def test_their_host_answers_our_runner(theirs, tmp_path, serdes):
    with connect(f"pipe://{tmp_path}/p?serdes={serdes}", deadline=20) as runner:
        for value, dtype, reply in EXCHANGES:
            advice = runner.evaluate({"x": value}, dtype=dtype)
            assert np.asarray(advice).dtype == dtype or isinstance(advice, (int, float, bool))
            assert np.allclose(np.ravel(advice), np.ravel(plain(reply)), rtol=0, atol=1e-5)
            assert np.size(advice) == np.size(plain(reply))
    theirs.end()
