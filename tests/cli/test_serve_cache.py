"""shmbridge serve --cache."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cli import X, evaluate, refused
from support.values import arrays, many, same, texts

from shmbridge.cli._cache import CachedModel


class Asked(dict[str, Any]):
    """A request without a compiler."""

    def __init__(self, wanted=None, **features):
        super().__init__(features)
        self.wanted = wanted


COUNTING = """
import pathlib

def advise(request):
    with pathlib.Path("asked").open("a") as asked:
        asked.write("x")
    return float(request["x"].sum())
"""


def test_a_cache_answers_the_same_question_after_a_restart(serve, name, where):
    (where / "counting.py").write_text(COUNTING)
    options = name, "--python", "counting:advise", "--cache", "advice.cache"
    for _ in range(2):
        serving = serve(*options)
        assert [evaluate(name, x=each) for each in (X, X + 1, X)] == [6.0, 9.0, 6.0]
        assert "3 requests, 0 errors" in serving.end()
    assert (where / "asked").read_text() == "xx"


@many
@given(x=arrays(), advice=st.one_of(arrays(), texts, st.lists(texts, min_size=1)))
def test_a_cache_returns_what_the_model_returned(tmp_path_factory, x, advice):
    answers = iter([advice])
    model = CachedModel(lambda request: next(answers), tmp_path_factory.mktemp("cache") / "file")
    first, second = model(Asked(x=x, text="é")), model(Asked(x=x, text="é"))
    assert first.keys() == second.keys() == {"advice"}
    if isinstance(advice, np.ndarray):
        assert same(second["advice"], first["advice"])
    else:
        assert second == first


@pytest.mark.parametrize(
    "other",
    [
        Asked(x=np.float32([1, 3])),
        Asked(x=np.float64([1, 2])),
        Asked(x=np.float32([[1, 2]])),
        Asked(y=np.float32([1, 2])),
        Asked(np.dtype("int64"), x=np.float32([1, 2])),
    ],
    ids=["value", "dtype", "shape", "name", "wanted"],
)
def test_a_cache_asks_again_for_another(tmp_path, other):
    answers = iter([1, 2])
    model = CachedModel(lambda request: next(answers), tmp_path / "file")
    assert model(Asked(x=np.float32([1, 2])))["advice"] == 1
    assert model(other)["advice"] == 2


def test_a_cache_does_not_keep_errors(tmp_path):
    answers = iter([ZeroDivisionError(), 7])

    def advise(request):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    model = CachedModel(advise, tmp_path / "file")
    with pytest.raises(ZeroDivisionError):
        model(Asked(x=1))
    assert model(Asked(x=1)) == {"advice": 7}


def test_serve_refuses_a_cache_that_is_another_file_or_for_batches(where, name):
    (where / "file").write_text("a text, not a database" * 100)
    model = name, "--python", "models:total", "--cache", "file"
    assert "file: expected a cache" in refused(1, "serve", *model, cwd=where)
    missing = refused(1, "serve", *model[:-1], "none/file", cwd=where)
    assert "none/file: expected a cache" in missing and "unable to open" in missing
    assert "--max-batch" in refused(2, "serve", *model, "--max-batch", "2", cwd=where)


def test_only_a_cache_needs_sqlite(python):
    code = "import sys; sys.modules['sqlite3'] = None; import shmbridge.cli.serve; print('loaded')"
    assert python(code).end() == (0, "loaded")
