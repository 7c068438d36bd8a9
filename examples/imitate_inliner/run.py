"""Teaches a small model to inline like LLVM, and deploys it in the compiler: python run.py
[--quick]"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import time
import zlib
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from shmbridge import Host
from shmbridge.training import Corpus, Module, Task, collect
from shmbridge.training.scores import text_size

HERE = Path(__file__).parent
BUILD, RESULTS = HERE / "build", HERE / "results"
SHMBRIDGE = os.path.join(sysconfig.get_path("scripts"), "shmbridge")
CLANG = "clang-22 -Oz -w -c {module} -o {output}"
LOG = "SHMBRIDGE_INLINER_LOG"  # the plug-in writes its decisions there
# name: (sdist, its sources, what they include, held out?)
CMARK = "third_party/cmark"
PROGRAMS = {
    "zopfli": ("zopfli==0.4.3", "zopfli/src/zopfli/*.c", [], False),
    "cmark": (
        "cmarkgfm==2025.10.22",
        f"{CMARK}/src/*.c",
        [f"{CMARK}/src", f"{CMARK}/extensions", "generated/unix"],
        False,
    ),
    "lodepng": ("zopfli==0.4.3", "zopfli/src/zopflipng/lodepng/*.cpp", [], True),
    "lz4": ("lz4==4.4.5", "lz4libs/*.c", [], True),
    "picosat": ("pycosat==0.6.6", "picosat.c", [], True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tiny program, and only numpy")
    quick = parser.parse_args().quick
    for tool in ("clang-22", "llvm-config-22", "cmake"):
        if not shutil.which(tool):
            raise SystemExit(f"expected {tool}: apt-get install clang-22 llvm-22-dev cmake g++")
    if quick:
        from linear import Linear as Model
    else:
        from network import Network as Model
    start = time.perf_counter()
    BUILD.mkdir(exist_ok=True)
    RESULTS.mkdir(exist_ok=True)
    train, held_out = tiny() if quick else real(BUILD)

    features, decisions = recorded(train)
    model = Model(features, decisions)
    print(f"trained on {len(decisions)} decisions about {len(train)} files")
    print(f"  {agreement(model.decide(features), decisions)}")
    results: dict[str, Any] = {"programs": {}}
    for program, modules in groupby(held_out, lambda module: module.name.partition("/")[0]):
        features, decisions = recorded(modules)
        print(f"{program}, held out: {len(decisions)} decisions")
        print(f"  {agreement(model.decide(features), decisions)}")
        results["programs"][program] = {
            "decisions": len(decisions),
            "as LLVM": float((model.decide(features) == decisions).mean()),
            "majority": float(max(decisions.mean(), 1 - decisions.mean())),
        }
    model.save(RESULTS / "model.onnx")
    results["deployed"] = deployed(model, held_out)
    results["seconds"] = time.perf_counter() - start
    (RESULTS / "results.json").write_text(json.dumps(results, indent=1))
    print(f"{results['seconds']:.0f} s")


def recorded(modules: Any) -> tuple[dict[str, Any], Any]:
    """LLVM's features and its own decisions in compilations of these modules: {name: int64[rows,
    1]}, int64[rows]."""
    task = Task(CLANG, llvm="inline", include_default=True, scores={"size": text_size})
    episodes = list(collect(lambda batch: batch["inlining_default"], task, modules))
    if different := [episode for episode in episodes if episode.reward]:  # or NaN
        raise SystemExit(f"expected clang's own object, found {different[0]!r}")
    asked = [episode.features for episode in episodes if len(episode)]
    numbers = [name for name, values in asked[0].items() if values.dtype == np.int64]
    columns = {name: np.concatenate([one[name] for one in asked]) for name in numbers}
    return columns, columns.pop("inlining_default")[:, 0]


def agreement(advice: Any, decisions: Any) -> str:
    guess = max(decisions.mean(), 1 - decisions.mean())
    return f"{(advice == decisions).mean():.2%} as LLVM's; a majority guess is right in {guess:.2%}"


def deployed(model: Any, held_out: Corpus) -> dict[str, Any]:
    """Compiles with the model in Python, in ONNX Runtime and as machine code, and compares the
    results."""
    file, library = RESULTS / "model.onnx", BUILD / "model.so"
    subprocess.run([SHMBRIDGE, "compile", file, "-o", library], check=True, stdout=subprocess.PIPE)
    scores = {"size": text_size, "crc": lambda path: zlib.crc32(path.read_bytes())}
    stock = Task(CLANG, llvm="inline", scores=scores)  # without a plug-in: `shmbridge run`
    plugin = Task(CLANG.replace(" ", f" -fpass-plugin={plug_in()} ", 1), scores=scores)
    with Host(f"imitate-{os.getpid()}") as host, host.start(model.decide, max_batch=2):
        ways = [
            ("clang-22, which asks Python", stock, host.url),
            ("with the plug-in, in Python", plugin, host.url),
            ("with the plug-in, onnx://", plugin, f"onnx://{file}"),
            ("with the plug-in, aot://", plugin, f"aot://{library}"),
        ]
        found = {way: [compiled(*how, module) for module in held_out] for way, *how in ways}
    plain = [stock.baseline(module) for module in held_out]
    same: dict[str, Any] = {}
    first = next(iter(found.values()))
    log: list[list[str]] = []
    print(f"{'deployed on the same files':30}{'.text':>9}{'decisions':>11}  the same")
    print(f"{'clang-22 -Oz, no model':30}{sum(s['size'] for s in plain):9.0f}")
    for way, compilations in found.items():
        same[way] = {
            "size": sum(scores["size"] for scores, _ in compilations),
            "objects as LLVM's": sum(
                scores["crc"] == alone["crc"]
                for (scores, _), alone in zip(compilations, plain, strict=True)
            ),
            "objects the same": [s["crc"] for s, _ in compilations] == [s["crc"] for s, _ in first],
        }
        told = "all objects" if same[way]["objects the same"] else "NOT all objects"
        if "plug-in" in way:  # which keeps a log
            decided = [decisions for _, decisions in compilations]
            log = log or decided
            same[way] |= {"decisions": sum(map(len, decided)), "decisions the same": decided == log}
            told += ", all decisions" if decided == log else ", NOT all decisions"
        print(f"{way:30}{same[way]['size']:9.0f}{same[way].get('decisions', ''):>11}  {told}")
    count = same[ways[0][0]]["objects as LLVM's"]
    print(f"{count} of {len(held_out)} objects are identical to clang-22's without a model")
    return same


def compiled(task: Task, url: str, module: Module) -> tuple[Any, list[str]]:
    """Scores, and the plug-in's decisions with their features, a line each."""
    path = BUILD / "decisions.json"
    path.unlink(missing_ok=True)
    os.environ[LOG] = str(path)
    outcome = task.run(module, url)
    del os.environ[LOG]
    if not outcome.ok or outcome.defaulted or "default advice" in outcome.stderr:
        raise SystemExit(f"{outcome.command}: {outcome.kind}\n{outcome.stderr}")
    return outcome.scores, path.read_text().splitlines() if path.exists() else []


def plug_in() -> Path:
    """Builds the pass plug-in of examples/llvm/inliner, which asks $SHMBRIDGE_URL."""

    def output(*command: Any) -> str:
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    source = Path(output(SHMBRIDGE, "config", "--examples"), "llvm", "inliner")
    packages = {
        "LLVM_DIR": output("llvm-config-22", "--cmakedir"),
        "shmbridge_DIR": output(SHMBRIDGE, "config", "--cmakedir"),
    }
    where = [f"-D{name}={path}" for name, path in packages.items()]
    output("cmake", "-S", source, "-B", BUILD / "plugin", *where)
    output("cmake", "--build", BUILD / "plugin")
    return BUILD / "plugin" / "shmbridge-inliner.so"


def real(folder: Path) -> tuple[Corpus, Corpus]:
    """The training and held-out files of PROGRAMS, fetched into `folder` if missing."""
    sides: tuple[list[Module], list[Module]] = [], []
    for name, (sdist, sources, includes, held_out) in PROGRAMS.items():
        root = folder / sdist.replace("==", "-")
        if not root.exists():
            print(f"fetching {sdist} from PyPI", flush=True)
            pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary"]
            subprocess.run([*pip, ":all:", "-d", folder, sdist], check=True)
            with tarfile.open(f"{root}.tar.gz") as archive:
                archive.extractall(folder, filter="data")
        flags = tuple(f"-I{root}/{include}" for include in includes)
        paths = sorted(root.glob(sources))
        sides[held_out].extend(Module(f"{name}/{path.name}", path, flags) for path in paths)
    return Corpus(sides[0]), Corpus(sides[1])


def tiny() -> tuple[Corpus, Corpus]:
    """tiny.c with several values of N."""
    modules = [Module(f"tiny/{n}", HERE / "tiny.c", (f"-DN={n}",)) for n in range(2, 10)]
    return Corpus(modules[:6]), Corpus(modules[6:])


if __name__ == "__main__":
    main()
