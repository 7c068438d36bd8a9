"""The generator of C, quickened, and a model that is compiled once."""

import pytest


@pytest.fixture(scope="module")
def quick():
    """Loads the generator's templates once."""
    from support.compiling import quickly

    with quickly():
        yield


@pytest.fixture(scope="module")
def models(tmp_path_factory, quick):
    """A folder with perceptron.onnx and perceptron.so, compiled once."""
    from support import onnx_models
    from support.compiling import compile

    folder = tmp_path_factory.mktemp("models")
    said = compile(
        onnx_models.perceptron(folder / "perceptron.onnx"), "-o", folder / "perceptron.so"
    )
    assert (
        "checked: within tolerance: differs from ONNX Runtime by" in said
        or "checked: exact" in said
    )
    assert "ask both models" in said and "12 random inputs (x -" in said
    return folder
