"""Every case on every combination of runner, SerDes and language, against a host in Python: see README.md."""

import importlib
import sys
from collections import Counter

import pytest

pytest.register_assert_rewrite("cases", "failures", "stage", "file_stage", "far_stage")

import failures  # noqa: E402, F401 (more cases)
from cases import CASES  # noqa: E402
from combinations import CANNOT, COMBINATIONS, LANGUAGES, RUNNERS, STAGES, cannot  # noqa: E402
from stage import Failed  # noqa: E402
from table import Table  # noqa: E402


@pytest.fixture(scope="session")
def commands(c_program, request):
    """How each language's runner is started; what is compiled is compiled once."""
    compiled = {}

    def command(language):
        source = LANGUAGES[language]
        if source.suffix == ".py":
            return sys.executable, source
        if language not in compiled:
            library = request.getfixturevalue("embedding") if language.endswith("+python") else None
            compiled[language] = c_program(source, library)
        return (compiled[language],)

    return command


@pytest.fixture(scope="session")
def table(request):
    table = Table()
    request.config.pluginmanager.register(table)
    return table


@pytest.fixture(scope="module", params=COMBINATIONS, ids=str)
def stage(request, commands, new_name, tmp_path_factory):
    kind = RUNNERS[request.param.runner]
    for package in kind.needs:
        pytest.importorskip(
            package, reason=f"{request.param.runner}:// needs the package {package}"
        )
    make = getattr(importlib.import_module(STAGES[kind.stage]), kind.stage)
    stage = make(
        request.param, commands(request.param.language), tmp_path_factory.mktemp("stage"), new_name
    )
    if kind.embeds and request.param.language != "python":
        stage.environment["SHMBRIDGE_PYTHON_LIBRARY"] = str(request.getfixturevalue("embedding"))
    yield stage
    stage.end()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", CASES)
def test(stage, name, table):
    entry = cannot(stage.combination, name)
    outcome = "failed"
    try:
        stage.begin(entry)
        outcome = attempt(stage, name, entry)
    except BaseException:
        stage.end()
        raise
    finally:
        table.note(stage.combination, outcome, entry)


def attempt(stage, name, entry):
    """Runs a case; "passed" or "cannot"."""
    try:
        CASES[name](stage)
    except Failed as failure:
        if entry is None or entry.error != failure.status:
            raise
        assert failure.message, f"{failure.status} came without a message"
        if not failure.opening:
            stage.works()
        return "cannot"
    if entry is None:
        return "passed"
    stale = [
        what
        for what in ("error", "request", "advice")
        if getattr(entry, what) and what not in stage.changed
    ]
    assert entry.sometimes or not stale, (
        f"cannot.toml says {entry.instead!r} of {stage.combination} ({entry.reason}), but it can: take that out"
    )
    return "cannot"


def test_every_entry_of_what_cannot_be_is_about_some_case():
    used = Counter(cannot(combination, name) for combination in COMBINATIONS for name in CASES)
    assert [entry for entry in CANNOT if not used[entry]] == []
