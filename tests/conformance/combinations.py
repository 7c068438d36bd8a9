"""What is combined: a new runner, SerDes or language is a line here."""

import fnmatch
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent


class Kind(NamedTuple):
    """A runner kind."""

    url: str  # that the runner opens
    cells: Mapping[str, tuple[str, ...]] = {"native": ("c",)}  # by SerDes, languages
    far: str = ""  # what the host opens, if that is another
    host: Mapping[str, Any] = {}  # what the host is told besides
    stage: str = "Stage"  # the class, in STAGES
    needs: tuple[str, ...] = ()  # packages
    embeds: bool = False  # C and C++ have it through Python in their process


# The core is the same in every language, so every language is on one runner kind, and C on all.
# Python is also where it has code of its own: for python:// and grpc://, for Protobuf, for JSON's
# numbers without a dtype, and for models in its process.
BOTH = {"native": ("c", "python")}

RUNNERS = {
    "shm": Kind("shm://{name}", {"native": ("c", "cpp", "python", "pure")}, host={"channels": 2}),
    "pure": Kind("shm://{name}", host={"channels": 2}, stage="PureStage"),
    "recovering": Kind(
        "shm://{name}?retries=2&backoff=0.01", far="shm://{name}", host={"channels": 2}
    ),
    "pipe": Kind(
        "pipe://{folder}/{name}?serdes={serdes}",
        {
            "flatbuffers": ("c",),
            "bitstream": ("c",),
            "json": ("c", "python"),
            "protobuf": ("python", "c"),
        },
    ),
    "onnx": Kind(
        "onnx://{folder}/{name}.onnx", BOTH, stage="OnnxStage", needs=("onnx", "onnxruntime")
    ),
    "tflite": Kind(
        "tflite://{folder}/{name}.tflite", stage="TfliteStage", needs=("ai_edge_litert",)
    ),
    "python": Kind("python://proxy:Proxy?host={name}", BOTH, far="shm://{name}", embeds=True),
    "aot": Kind("aot://{folder}/{name}.so", stage="AotStage", needs=("onnx", "emx_onnx_cgen")),
    "grpc": Kind(
        "grpc://127.0.0.1:{port}?message_bytes=80000000", BOTH, needs=("grpc",), embeds=True
    ),
    "worker": Kind(
        "grpc://127.0.0.1:{port}?message_bytes=80000000&role=server&connect_timeout=10",
        far="grpc://127.0.0.1:{port}?message_bytes=80000000&role=client",
        needs=("grpc",),
        embeds=True,
    ),
    "relay": Kind(
        "shm://{name}",
        far="grpc://unix:{folder}/{name}?message_bytes=80000000",
        stage="RelayStage",
        needs=("grpc",),
    ),
}

# Modules.
STAGES = {
    "Stage": "stage",
    "OnnxStage": "onnx_stage",
    "TfliteStage": "tflite_stage",
    "AotStage": "aot_stage",
    "RelayStage": "far_stage",
    "PureStage": "pure_stage",
}

# Languages of the runner's side: the program that reads the script.
LANGUAGES = {
    "c": HERE.parent / "cross" / "scripted_runner.c",
    "cpp": HERE / "cpp_runner.cpp",
    "python": HERE / "python_runner.py",
    "pure": HERE / "pure_runner.py",  # a second implementation
}


class Combination(NamedTuple):
    runner: str
    serdes: str
    language: str

    def __str__(self):
        return "/".join(self)

    @property
    def has_core(self):
        """Is it the one whose core speaks for its row's? "pure" has a core of its own."""
        return self.language in (RUNNERS[self.runner].cells[self.serdes][0], "pure")


COMBINATIONS = [
    Combination(runner, serdes, language)
    for runner, kind in RUNNERS.items()
    for serdes, languages in kind.cells.items()
    for language in languages
]


@dataclass(frozen=True)
class Cannot:
    """An entry of cannot.toml."""

    where: str  # patterns of RUNNER/SERDES/LANGUAGE, spaces between
    cases: tuple[str, ...]  # patterns of names
    reason: str
    error: str = (
        ""  # the status that comes instead ("none": an answer; "ABSENT": it is not tried), or
    )
    request: str = ""  # the form (forms.py) in which the host gets it, or
    advice: str = ""  # the form in which the runner gets it
    sometimes: bool = False  # it need not happen

    def covers(self, combination, case):
        return any(fnmatch.fnmatch(str(combination), p) for p in self.where.split()) and any(
            fnmatch.fnmatch(case, p) for p in self.cases
        )

    @property
    def instead(self):
        forms = [
            f"{side} as {form}"
            for side, form in (("request", self.request), ("advice", self.advice))
            if form
        ]
        return f"error {self.error}" if self.error else ", ".join(forms)


CANNOT = [
    Cannot(**entry | {"cases": tuple(entry["cases"])})
    for entry in tomllib.loads((HERE / "cannot.toml").read_text())["cannot"]
]


def cannot(combination, case):
    """The first entry for a case of a combination; None when it must simply pass."""
    return next((entry for entry in CANNOT if entry.covers(combination, case)), None)
