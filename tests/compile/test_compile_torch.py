"""shmbridge compile of PyTorch exports, which needs libtorch when it runs, and no Python."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from support.compiling import compile  # noqa: E402

import shmbridge  # noqa: E402


def test_an_export(tmp_path):
    """Open sizes, a dict of outputs, dtypes, a view that is not contiguous; from C without Python's
    libtorch, found by its path."""

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(30, 4)

        def forward(self, x, n):
            y = torch.relu(self.layer(x))
            return {"y": y, "turned": y.transpose(0, 1), "count": (y > 0).sum(-1), "n": 2 * n}

    torch.manual_seed(0)
    model = Model().eval()
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(
        model,
        (torch.zeros(3, 30), torch.zeros(5, dtype=torch.int16)),
        dynamic_shapes={"x": {0: batch}, "n": None},
    )
    torch.export.save(program, tmp_path / "m.pt2")
    said = compile(tmp_path / "m.pt2", "-o", tmp_path / "m.so")
    assert "PyTorch" in said
    shown = compile("--show", tmp_path / "m.so")
    assert (
        "input  x: float32[?,30]" in shown
        and "output turned: float32[4,?]" in shown
        and "output n: int16[5]" in shown
    )
    with shmbridge.connect(f"aot://{tmp_path}/m.so") as runner:
        for size in (2, 9, 64, 3):
            x, n = torch.randn(size, 30), torch.arange(5, dtype=torch.int16)
            runner.evaluate({"x": x.numpy(), "n": n.numpy()})
            with torch.no_grad():
                right = model(x, n)
            assert list(runner.advice) == ["y", "turned", "count", "n"]
            for name, value in runner.advice.items():
                assert value.dtype == right[name].numpy().dtype
                np.testing.assert_allclose(value, right[name].numpy(), rtol=1e-4, atol=1e-6)
    assert "leave --weights out" in compile(tmp_path / "m.pt2", "--weights", tmp_path / "w", code=1)


def test_a_file_that_is_no_export(tmp_path):
    (tmp_path / "m.pt2").write_bytes(b"junk")
    assert "expected what torch.export.save writes" in compile(
        tmp_path / "m.pt2", "-o", tmp_path / "m.so", code=1
    )
