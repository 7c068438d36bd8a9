"""examples/phase_ordering: a plugin of stock opt-22, and a policy that is learnt and deployed with
it."""

import os
import re
import shutil
import subprocess
import sys

import pytest

import shmbridge

NEEDED = ("clang-22", "opt-22", "llc-22", "llvm-mca-22", "llvm-config-22", "cmake", "c++")
MISSING = [program for program in NEEDED if not shutil.which(program)]
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"no {' '.join(MISSING)}"),
    pytest.mark.usefixtures("no_bridges"),
]


DONE = {}  # the example runs once: it builds the plugin


@pytest.fixture
def example(run_example, examples, request):
    """What the example prints, and its folder."""
    if request.config.getoption("--long") and not shutil.which("csmith"):
        pytest.skip("no csmith")
    if subprocess.run(["llvm-config-22", "--cmakedir"], capture_output=True).returncode:
        pytest.skip("no headers of LLVM 22")
    if not DONE:
        DONE.update(printed=run_example("phase_ordering"), folder=examples / "phase_ordering")
    return DONE


@pytest.mark.slow
def test_a_policy_is_trained_and_decides_the_same_by_shm_onnx_and_aot(example):
    printed = example["printed"]
    assert "random search" in printed
    assert_same(printed)


def assert_same(printed):
    """In this process, by onnx:// and by aot://, in all modules."""
    same = re.search(r"'modules': (\d+), 'decisions': (\d+), 'scores': (\d+)", printed)
    assert same and int(same[1]) > 0 and len(set(same.groups())) == 1, printed


@pytest.mark.slow
def test_a_forest_picks_the_same_sequence_by_shm_and_onnx(example, run_example):
    pytest.importorskip("sklearn", reason="needs scikit-learn")
    pytest.importorskip("skl2onnx")
    printed = run_example(example["folder"], "coreset.py")
    assert_same(printed)
    assert "best of 10, coreset" in printed and "best of 10, random" in printed


@pytest.mark.slow
def test_poset_rl_decides_the_same_by_shm_onnx_and_aot_and_as_separate_processes(
    example, run_example, tmp_path
):
    folder = example["folder"]
    if not shutil.which("llvm-ir2vec-22"):
        pytest.skip("no llvm-ir2vec-22")
    printed = run_example(folder, "poset_rl.py")
    assert_same(printed)
    model, module = folder / "results/quick/poset_rl.onnx", folder / "build/small/test.bc"
    files = [model, folder / "build/ir2vec.json", module, tmp_path / "out.bc"]
    original = [sys.executable, folder / "poset_rl.py", "original", *files]
    actions = subprocess.run(original, check=True, capture_output=True, text=True).stdout.split()
    assert len(actions) == 15 and set(map(int, actions)) <= set(range(34))
    printing = "import poset_rl; print(*poset_rl.asking(poset_rl.VOCABULARY))"
    words = [sys.executable, "-c", printing]
    opt = subprocess.check_output(words, cwd=folder, text=True).split()
    env = {**os.environ, "SHMBRIDGE_URL": f"onnx://{model}"}
    inside = subprocess.check_output([*opt, module, "-S"], env=env)
    outside = subprocess.check_output(["llvm-dis-22", tmp_path / "out.bc", "-o", "-"])
    assert inside.partition(b"\n")[2] == outside.partition(b"\n")[2] != b""


# ---- The plugin ----


SOURCE = """
static int g(int x) { return x * x; }
__attribute__((always_inline)) static inline int always(int x) { return g(x) + 1; }
int f(int x) { return always(x); }
"""


@pytest.fixture
def order(example, tmp_path):
    """order("sroa\\nstop", options): opt's exit status, what it says, and the IR that it makes."""
    plugin = example["folder"] / "build" / "phase-ordering.so"
    source = tmp_path / "a.c"
    source.write_text(SOURCE)
    plain = ["-Oz", "-Xclang", "-disable-llvm-passes", "-emit-llvm", "-S"]
    subprocess.run(["clang-22", *plain, source, "-o", source.with_suffix(".ll")], check=True)
    source = source.with_suffix(".ll")

    def run(actions, options="steps=3;print", url=None, pipeline=None, extra=()):
        (tmp_path / "actions.txt").write_text(actions)
        passes = pipeline or f"phase-ordering<actions={tmp_path}/actions.txt;{options}>"
        done = subprocess.run(
            ["opt-22", f"-load-pass-plugin={plugin}", f"-passes={passes}", *extra, "-S", source],
            env={**os.environ, **({"SHMBRIDGE_URL": url} if url else {})},
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.returncode, done.stderr, done.stdout

    return run


ACTIONS = "# of -Oz\nfunction(sroa)  # memory\n\ncgscc(inline)\nstop\n"


def test_a_model_chooses_passes_until_it_says_stop(order, new_name):
    asked = []

    def model(request):
        asked.append({name: request[name].copy() for name in ("used", "action_mask", "counters")})
        return [1, 0, 2][len(asked) - 1]

    with shmbridge.Host(new_name()) as host, host.start(model):
        status, said, ir = order(ACTIONS, "steps=9;print", host.url)
    assert status == 0 and "actions 1 0 2: 17 -> " in said and "alloca" not in ir
    assert [list(each["action_mask"]) for each in asked] == [[1, 1, 1], [1, 0, 1], [0, 0, 1]]
    assert [list(each["used"]) for each in asked] == [[0, 0, 0], [0, 1, 0], [1, 1, 0]]
    assert asked[0]["counters"].dtype == "float32" and asked[0]["counters"][15] == 17


def test_an_action_may_be_used_again_with_repeat_and_steps_end_the_episode(order, new_name):
    with shmbridge.Host(new_name()) as host, host.start(lambda request: 0):
        status, said, _ = order(ACTIONS, "steps=3;repeat;print", host.url)
    assert status == 0 and "actions 0 0 0:" in said


def test_always_inline_is_obeyed_whatever_the_model_says(order, new_name):
    with shmbridge.Host(new_name()) as host, host.start(lambda request: 2):
        status, said, ir = order(ACTIONS, "steps=9;print", host.url)
    assert status == 0 and "actions 2:" in said
    assert "call i32 @g" in ir and "call i32 @always" not in ir


def test_without_a_url_or_a_host_it_is_oz(order):
    oz = order("", pipeline="default<Oz>")[2]
    assert order(ACTIONS) == (0, "phase-ordering: " + order(ACTIONS)[1].partition(": ")[2], oz)
    status, said, ir = order(ACTIONS, url="shm://nobody")
    assert (status, ir) == (0, oz) and "-Oz goes on after 0 actions" in said and "nobody" in said


def test_with_ir2vec_a_model_also_sees_the_modules_embedding(order, new_name, tmp_path):
    opcodes = '{"Opcodes": {"Load": [0, 1]}, "Types": {"IntegerTy": [1, 0]}'
    (tmp_path / "vocabulary.json").write_text(opcodes + ', "Arguments": {"Constant": [0, 0]}}')
    seen = []

    def model(request):
        seen.append(request["ir2vec"].copy())
        return 2

    vocabulary = f"-ir2vec-vocab-path={tmp_path}/vocabulary.json"
    with shmbridge.Host(new_name()) as host, host.start(model):
        status, _, _ = order(ACTIONS, "steps=9;ir2vec", host.url, extra=[vocabulary])
    assert status == 0 and seen[0].dtype == "float32" and (seen[0] > 0).all()


@pytest.mark.parametrize("choice", [0, 7])
def test_an_action_that_may_not_be_used_ends_in_oz(order, new_name, choice):
    advice = iter([0, choice])
    with shmbridge.Host(new_name()) as host, host.start(lambda request: next(advice)):
        status, said, _ = order(ACTIONS, url=host.url)
    assert status == 0
    assert f"-Oz goes on after 1 actions: the model chose action {choice}" in said


@pytest.mark.parametrize(
    "actions, options, expected",
    [
        ("function(sroa)\nfunction(foo)\n", "steps=3", "actions.txt:2: expected a pipeline as"),
        ("# nothing\n", "steps=3", "expected a pipeline in each line, found none"),
        (ACTIONS, "steps=0", "with a NUMBER above 0"),
        (ACTIONS, "steps=many", "found 'steps=many'"),
        (ACTIONS, "steps=3;actions=none", "none: No such file"),
    ],
)
def test_what_cannot_be_parsed_is_said_and_opt_fails(order, actions, options, expected):
    status, said, _ = order(actions, options)
    assert status == 1 and expected in said
