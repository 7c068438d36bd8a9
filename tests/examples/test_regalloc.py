"""examples/regalloc: a plug-in for clang-22 whose registers, splits and spills a model chooses."""

import json
import os
import random
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from shmbridge import Host

TOOLS = ("clang-22", "llc-22", "llvm-config-22", "llvm-dwarfdump-22", "cmake")
MISSING = [tool for tool in TOOLS if not shutil.which(tool)]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"no {', '.join(MISSING)}")

VERIFY = ("-mllvm", "-verify-machineinstrs")
# Calls, loops, many live values, and a second function: all of it is printed.
MAIN = """
#include <stdio.h>
__attribute__((noinline)) unsigned mix(unsigned *x, int n) {
    unsigned a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7, h = 8, i = 9, j = 10, k = 11, l = 12;
    for (int t = 0; t < n; t++) {
        a += b * x[t % 7], b ^= c + e, c -= d << 3, d += e * f, e ^= g, f += h * i, g ^= j + a;
        h += k ^ l, i -= a, j += b, k ^= c + x[t % 5], l += d;
        if (t % 9 == 0) printf("%u %u\\n", a ^ l, k), x[t % 7] += g;
    }
    return a ^ b ^ c ^ d ^ e ^ f ^ g ^ h ^ i ^ j ^ k ^ l;
}
int main(void) {
    unsigned x[7] = {3, 1, 4, 1, 5, 9, 2};
    printf("%u\\n", mix(x, 100));
}
"""


@pytest.fixture
def plugin(run_example, examples, request):
    """The plug-in; the example runs once and builds it."""
    if subprocess.run(["llvm-config-22", "--cmakedir"], capture_output=True).returncode:
        pytest.skip("no headers of LLVM 22")
    if not DONE:
        pytest.importorskip("onnx")
        DONE.update(printed=run_example("regalloc"), folder=examples / "regalloc")
    return DONE["folder"] / "build/shmbridge-regalloc.so"


DONE = {}


@pytest.fixture
def compiled(plugin, tmp_path):
    """compiled(model, ...): the output's bytes, and stderr; model: a function, or a URL."""

    def compile(model=None, *flags, source=MAIN, use=True, output="a.o", action="-c"):
        (tmp_path / "a.c").write_text(source)
        loads = [f"-fpass-plugin={plugin}", *VERIFY] if use else []
        command = ["clang-22", "-O2", "-w", *loads, *flags, action, tmp_path / "a.c"]
        with (
            Host(f"regalloc-{os.getpid()}") as host,
            host.start(model if callable(model) else choose(0)),
        ):
            url = {"SHMBRIDGE_URL": model if isinstance(model, str) else host.url} if model else {}
            done = subprocess.run(
                [*command, "-o", tmp_path / output],
                env={**os.environ, **url},
                capture_output=True,
                text=True,
                timeout=120,
            )
        assert done.returncode == 0, done.stderr
        return (tmp_path / output).read_bytes(), done.stderr

    return compile


def choose(seed, wrong=0.0):
    """A random action that the mask allows; with the probability `wrong` any number."""
    draw = random.Random(seed)

    def model(request):
        mask = np.asarray(request["action_mask"])
        if draw.random() < wrong:
            return draw.randrange(-9, 99)
        return draw.choice(mask.nonzero()[0].tolist())

    return model


def runs(tmp_path, compiled, model, *flags, **more):
    """The program's output, compiled and linked."""
    said = compiled(model, *flags, output="program", action="-fno-strict-aliasing", **more)[1]
    done = subprocess.run([tmp_path / "program"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    return done.stdout, said


def test_a_policy_is_trained_and_as_onnx_models_it_makes_the_same_object(plugin, compiled):
    results = json.loads((DONE["folder"] / "results/results.json").read_text())
    policies = [row["policy"].partition(",")[0] for row in results["rows"]]
    assert list(dict.fromkeys(policies)) == ["greedy", "textbook", "random search", "learnt"]
    url = re.search(r"onnx://\S+", DONE["printed"])[0]
    assert compiled(learnt_policy())[0] == compiled(url)[0] != compiled(use=False)[0]


@pytest.mark.parametrize("wrong", [0.0, 0.5])
@pytest.mark.parametrize("flags", [(), ("-g", "-O1")])
def test_any_answers_make_a_correct_program(compiled, tmp_path, wrong, flags):
    right = runs(tmp_path, compiled, None, *flags, use=False)[0]
    draw = choose(1)
    first = []

    def model(request):  # the first questions of a function are answered well
        new = request["function"] not in first
        first.append(request["function"])
        return draw(request) if new or request["agent"] == "colour" else answer(request)

    answer = choose(2, wrong)
    found, said = runs(tmp_path, compiled, model, *flags)
    assert found == right
    counted = re.search(r"(\d+) of (\d+) decisions in others are the plug-in's own: (.*)", said)
    assert bool(counted) == bool(wrong)
    assert not wrong or (0 < int(counted[1]) < int(counted[2]) and "action_mask" in counted[3])
    if "-g" in flags:
        compiled(choose(1), *flags)
        check = ["llvm-dwarfdump-22", "--verify", tmp_path / "a.o"]
        assert subprocess.run(check, capture_output=True).returncode == 0


def test_without_a_usable_first_answer_the_object_is_plain_clangs(compiled):
    plain = compiled(use=False)[0]
    assert compiled() == (plain, compiled()[1]) and "greedy allocates" in compiled()[1]
    assert compiled("shm://nobody")[0] == plain

    def fails(request):
        raise ValueError("nothing")

    for model in (fails, lambda request: 99, lambda request: -1):
        found, said = compiled(model)
        assert found == plain and said.count("warning") == 1
        assert "2 of 2 functions have the registers of greedy" in said


@pytest.mark.parametrize("after", [1, 2, 30, 200])
def test_a_host_that_fails_or_dies_after_some_answers_leaves_a_correct_program(
    compiled, tmp_path, after
):
    right = runs(tmp_path, compiled, None, use=False)[0]
    asked, draw = [], choose(3)

    def model(request):
        asked.append(request["function"])
        if len(asked) > after:
            raise ValueError("no more")
        return draw(request)

    found, said = runs(tmp_path, compiled, model)
    assert found == right and "no more" in said and said.count("warning") == 1
    (tmp_path / "dying.py").write_text(DYING.replace("AFTER", str(after)))
    name = f"dying-{os.getpid()}"
    serve = ["shmbridge", "serve", name, "--python", "dying:model"]
    with subprocess.Popen(serve, cwd=tmp_path, stdout=subprocess.PIPE) as host:
        host.stdout.readline()
        found, said = runs(tmp_path, compiled, f"shm://{name}")
    subprocess.run(["shmbridge", "gc", name], check=True, capture_output=True)
    assert found == right and said.count("warning") == 1 and host.returncode == 9


DYING = """
import os
left = [AFTER]
def model(request):
    left[0] -= 1
    if left[0] < 0:
        os._exit(9)
    return int(request["action_mask"].argmax())
"""


@pytest.mark.parametrize("target", ["aarch64-linux-gnu", "riscv64-linux-gnu"])
def test_other_targets_are_allocated_too(compiled, target):
    kernel = (DONE["folder"] / "kernels/inverse4.c").read_text()
    said = compiled(choose(5), f"--target={target}", "-Rpass-analysis=shmbridge", source=kernel)[1]
    assert "by a model" in said and "warning" not in said


def test_thinlto_asks_in_the_linker(plugin, compiled, tmp_path):
    if not shutil.which("ld.lld-22"):
        pytest.skip("no lld-22")
    right = runs(tmp_path, compiled, None, use=False)[0]
    asked, draw = [], choose(6)

    def model(request):
        asked.append(request["function"])
        return draw(request)

    flags = ("-flto=thin", "-fuse-ld=lld-22", f"-Wl,--load-pass-plugin={plugin}")
    assert runs(tmp_path, compiled, model, *flags, use=False)[0] == right
    assert "mix" in asked


ROUND_TRIP = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "zstd.h"
static char from[1 << 20], packed[1 << 21], back[1 << 20];
int main(void) {
    unsigned x = 1;
    for (size_t i = 0; i < sizeof from; i++)
        x = x * 69069 + 1, from[i] = "shmbridge"[(x >> 24) % 9];
    for (int level = -5; level <= 22; level++) {
        size_t n = ZSTD_compress(packed, sizeof packed, from, sizeof from, level);
        unsigned long hash = 5381;
        for (size_t i = 0; i < n; i++) hash = hash * 33 + (unsigned char)packed[i];
        if (ZSTD_decompress(back, sizeof back, packed, n) != sizeof from) return 1;
        if (memcmp(from, back, sizeof from)) return 2;
        printf("%d %zu %lu\\n", level, n, hash);
    }
}
"""


@pytest.fixture
def built(plugin, examples, tmp_path, request):
    """built(package, sources, model): the sdist's folder; plain clang's program; the model's."""
    if not request.config.getoption("--long"):
        pytest.skip("takes minutes: --long")
    sys.path.insert(0, str(examples))
    try:
        import shared
    finally:
        sys.path.pop(0)

    def build(package, sources, model, *flags):
        folder, made = shared.fetch(package, tmp_path), []
        for loads in ([], [f"-fpass-plugin={plugin}", *VERIFY]):
            made.append(tmp_path / f"program{len(loads)}")
            words = ["clang-22", "-O2", "-w", *loads, *flags, "-I", folder / "zstd"]
            files = [folder / each if isinstance(each, str) else each for each in sources]
            with Host(f"built-{os.getpid()}") as host, host.start(model):
                env = {**os.environ, "SHMBRIDGE_URL": host.url}
                done = subprocess.run(
                    [*words, *files, "-o", made[-1], "-lm"], env=env, capture_output=True, text=True
                )
            assert done.returncode == 0 and not done.stderr, done.stderr
        return folder, *made

    return build


def learnt_policy():
    sys.path.insert(0, str(DONE["folder"]))
    try:
        from policy import learnt
    finally:
        sys.path.pop(0)
    return learnt


@pytest.mark.slow
@pytest.mark.parametrize("random_answers", [False, True])
def test_lua_passes_its_own_tests(built, random_answers):
    model = choose(7) if random_answers else learnt_policy()
    lua = "third-party/lua54/onelua.c"
    folder, _, program = built("lupa==2.8", [lua], model, "-DLUA_USE_POSIX")
    tests = folder / "third-party/lua54/testes"
    words = [program, "-e", "_U=true", "all.lua"]
    done = subprocess.run(words, cwd=tests, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "final OK !!!" in done.stdout, done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("random_answers", [False, True])
def test_zstd_writes_the_same_bytes_and_reads_them_back(built, tmp_path, random_answers):
    model = choose(8) if random_answers else learnt_policy()
    (tmp_path / "main.c").write_text(ROUND_TRIP)
    sources = ["zstd/zstd.c", tmp_path / "main.c"]
    said = []
    for program in built("zstandard==0.25.0", sources, model)[1:]:
        done = subprocess.run([program], capture_output=True, text=True, timeout=600)
        assert done.returncode == 0
        said.append(done.stdout)
    assert said[0] == said[1] and said[0].count("\n") == 28


def test_a_model_sees_the_range_its_neighbours_and_embeddings(plugin, compiled, tmp_path):
    made = subprocess.run(
        [sys.executable, "../vocabulary.py", "mir", tmp_path / "vocabulary.json", "kernels/sort.c"],
        cwd=DONE["folder"],
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    seen = []

    def model(request):
        seen.append({name: request[name] for name in request})
        return int(np.asarray(request["action_mask"]).argmax())

    compiled(model, "-mllvm", f"-mir2vec-vocab-path={tmp_path}/vocabulary.json")
    task, colour = seen[0], next(each for each in seen if each["agent"] == "colour")
    assert task["range"].shape == (12,) and colour["registers"].shape == (64, 6)
    assert any(len(each["neighbours"][0]) for each in seen)
    rows = task["embeddings"][0]
    assert rows.shape[1] == 100 and np.any(rows)
    assert {"task", "colour"} <= {each["agent"] for each in seen}
