"""What is combined: a new runner, SerDes or language is a line here."""

import fnmatch
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent

# Runners by name: the URL that host and runner open, the SerDes, and what the host is told besides.
RUNNERS = {
    "shm": ("shm://{name}", ["native"], {"channels": 2}),
    "pipe": ("pipe://{folder}/{name}?serdes={serdes}", ["flatbuffers", "bitstream", "json", "protobuf"], {}),
}

# Languages of the runner's side: the program that reads the script.
LANGUAGES = {
    "c": HERE.parent / "cross" / "scripted_runner.c",
    "cpp": HERE / "cpp_runner.cpp",
    "python": HERE / "python_runner.py",
}


class Combination(NamedTuple):
    runner: str
    serdes: str
    language: str

    def __str__(self):
        return "/".join(self)


COMBINATIONS = [
    Combination(runner, serdes, language)
    for runner, (_, several, _) in RUNNERS.items()
    for serdes in several
    for language in LANGUAGES
]


@dataclass(frozen=True)
class Cannot:
    """An entry of cannot.toml."""

    where: str  # a pattern of RUNNER/SERDES/LANGUAGE
    cases: tuple[str, ...]  # patterns of names
    reason: str
    error: str = ""  # the status that comes instead, or
    request: str = ""  # the form (forms.py) in which the host gets it, or
    advice: str = ""  # the form in which the runner gets it

    def covers(self, combination, case):
        return fnmatch.fnmatch(str(combination), self.where) and any(fnmatch.fnmatch(case, p) for p in self.cases)

    @property
    def instead(self):
        forms = [f"{side} as {form}" for side, form in (("request", self.request), ("advice", self.advice)) if form]
        return f"error {self.error}" if self.error else ", ".join(forms)


CANNOT = [
    Cannot(**entry | {"cases": tuple(entry["cases"])})
    for entry in tomllib.loads((HERE / "cannot.toml").read_text())["cannot"]
]


def cannot(combination, case):
    """The first entry for a case of a combination; None when it must simply pass."""
    return next((entry for entry in CANNOT if entry.covers(combination, case)), None)
