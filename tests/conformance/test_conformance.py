"""Every case on every combination of runner, SerDes and language, against a host in Python: see
README.md."""

import importlib
import sys
from collections import Counter

import pytest

pytest.register_assert_rewrite("cases", "failures", "stage", "file_stage", "far_stage")

import failures  # noqa: E402, F401 (more cases)
from cases import CASES  # noqa: E402
from combinations import CANNOT, COMBINATIONS, LANGUAGES, RUNNERS, STAGES, cannot  # noqa: E402
from stage import Failed  # noqa: E402


@pytest.fixture(scope="session")
def commands(c_program):
    """How each language's runner is started; what is compiled is compiled once."""
    compiled = {}

    def command(language):
        source = LANGUAGES[language]
        if source.suffix == ".py":
            return sys.executable, source
        if language not in compiled:
            compiled[language] = c_program(source)
        return (compiled[language],)

    return command


@pytest.fixture(scope="module")
def stages(commands, new_name, tmp_path_factory, request):
    """stages(combination): the Stage of the case before, while the combination is the same."""
    stage = None

    def made(combination):
        kind = RUNNERS[combination.runner]
        for package in kind.needs:
            pytest.importorskip(
                package, reason=f"{combination.runner}:// needs the package {package}"
            )
        make = getattr(importlib.import_module(STAGES[kind.stage]), kind.stage)
        folder = tmp_path_factory.mktemp("stage")
        stage = make(combination, commands(combination.language), folder, new_name)
        by_python = kind.embeds or combination.serdes == "protobuf"
        if by_python and combination.language != "python":
            stage.environment["SHMBRIDGE_PYTHON"] = str(request.getfixturevalue("embedding"))
        return stage

    def of(combination):
        nonlocal stage
        if stage is None or stage.combination != combination:
            before, stage = stage, None
            if before:
                before.end()
            stage = made(combination)
        return stage

    yield of
    if stage:
        stage.end()


# These take long, and what they find is the core's, whatever language calls it.
OF_THE_CORE = ["size-16MB-request", "size-16MB-advice", "too-large", "host-dies", "host-stops"]
OF_THE_CORE += ["runner-dies-while-the-host-is-stopped"]


def tried(combination, name):
    entry = cannot(combination, name)
    alike = name in OF_THE_CORE and not combination.has_core
    # All models in files convert by one function of the core (model.c), which onnx tries.
    alike |= name.startswith("wanted-") and combination.runner in ("tflite", "aot")
    return not alike and (entry is None or entry.error != "ABSENT")


PRODUCT = [
    pytest.param(combination, name, id=f"{combination}-{name}")
    for combination in COMBINATIONS
    for name in CASES
    if tried(combination, name)
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("combination, name", PRODUCT)
def test(combination, name, stages, record_property):
    stage = stages(combination)
    entry = cannot(stage.combination, name)
    record_property("cannot", entry is not None)
    try:
        stage.begin(entry)
        attempt(stage, name, entry)
    except BaseException:
        stage.end()
        raise


def attempt(stage, name, entry):
    """Runs a case, and compares what cannot be with its entry."""
    try:
        CASES[name](stage)
    except Failed as failure:
        if entry is None or entry.error != failure.status:
            raise
        assert failure.message, f"{failure.status} came without a message"
        if not failure.opening:
            stage.works()
        return
    if entry is None:
        return
    stale = [
        what
        for what in ("error", "request", "advice")
        if getattr(entry, what) and what not in stage.changed
    ]
    assert entry.sometimes or not stale, (
        f"cannot.toml says {entry.instead!r} of {stage.combination} ({entry.reason}), but it can: "
        "take that out"
    )


def test_every_entry_of_what_cannot_be_is_about_some_case():
    used = Counter(cannot(combination, name) for combination in COMBINATIONS for name in CASES)
    assert [entry for entry in CANNOT if not used[entry]] == []
