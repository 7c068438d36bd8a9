"""Policies of `shmbridge run` that fail, or are asked about the first decisions only: a right
object comes of it."""

import re
import shutil
import subprocess

import pytest
from support.run import SHMBRIDGE
from support.stock import (
    ADVICE,
    ALL,
    SOURCES,
    Compiler,
    clang,
    compiler_of,
    each_once,
    environment,
    expect_plain_object,
    needs,
    run_words,
)

from shmbridge.logs import TrainingLog

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_is_left")]


@each_once
@pytest.mark.parametrize("policy", ["throws", "wild", "silly"])
def test_policy_without_usable_advice_leaves_the_plain_compilers_object(
    policy, version, shmbridge_run, tmp_path
):
    outcome = shmbridge_run(ALL, policy, *clang(version, tmp_path))
    # -v shows what the policy raised, and advice that does not fit; llvm.c checks the rest
    assert outcome.status == 0 and ("Traceback" in outcome.stderr) == (policy == "throws")
    assert bool(outcome.stderr) == (policy != "wild")
    assert 0 < outcome.defaulted == outcome.asked < 100  # pipes look every 20 ms
    expect_plain_object(version, tmp_path)


@each_once
def test_eviction_that_the_mask_forbids_leaves_the_plain_compilers_object(
    version, shmbridge_run, tmp_path
):
    outcome = shmbridge_run("evict", "masked", *clang(version, tmp_path))
    assert outcome.status == 0
    assert outcome.asked >= outcome.defaulted > 0
    expect_plain_object(version, tmp_path)


NEVER_CALLED = """
extern "C" void never() __attribute__((error("out of range")));
inline int at(const int *p, int i) { if (i >= 4) never(); return p[i]; }
int f(const int *p) { return at(p, 1) + at(p, 2); }
"""


@each_once
@pytest.mark.parametrize("flags", [[], ["-Werror"]], ids=str)
def test_advice_that_clang_cannot_compile_leaves_the_plain_compilers_object(
    flags, version, shmbridge_run, tmp_path
):
    """Plain clang inlines the call, and so never compiles what must not be called."""
    needs(f"clang-{version}")
    (tmp_path / "at.cpp").write_text(NEVER_CALLED)
    command = [f"clang-{version}", "-O2", "-c", *flags, tmp_path / "at.cpp", SOURCES / "more.c"]
    outcome = shmbridge_run("inline", "advise", *command)
    made = {name: (tmp_path / name).read_bytes() for name in ("at.o", "more.o")}
    plain = subprocess.run(list(map(str, command)), cwd=tmp_path, stderr=-1, text=True, check=True)
    assert (outcome.status, outcome.stderr.count("\n")) == (0, plain.stderr.count("\n") + 1)
    assert "failed with the policy's advice" in outcome.stderr
    assert made == {name: (tmp_path / name).read_bytes() for name in made}


@each_once
def test_llvm_limits_what_inlining_everything_adds(version, shmbridge_run, tmp_path):
    needs(f"clang-{version}")
    calls = [
        f"static int f{i}(int x) {{ return f{i - 1}(x) + f{i - 1}(-x); }}" for i in range(1, 30)
    ]
    source = tmp_path / "wide.c"
    first, last = (
        "int g(int); static int f0(int x) { return g(x); }",
        "int h(int x) { return f29(x); }",
    )
    source.write_text("\n".join([first, *calls, last]))
    command = [f"clang-{version}", "-O2", "-c", source, "-o", tmp_path / "out.o"]
    outcome = shmbridge_run("inline", "inlines", *command)
    assert (outcome.status, outcome.stderr, outcome.defaulted) == (0, "", 0)
    assert 0 < outcome.asked < 29


@each_once
@pytest.mark.parametrize("policy", ["hangs", "killed"])
def test_policy_that_hangs_or_is_killed_leaves_the_plain_compilers_object(
    policy, version, shmbridge_run, tmp_path
):
    outcome = shmbridge_run(
        "priority", policy, *clang(version, tmp_path), options=["--deadline", "0.3"]
    )
    assert (outcome.status, outcome.stderr) == (0, "")
    assert outcome.advised == 19
    expect_plain_object(version, tmp_path)


def test_policy_that_was_late_is_not_asked_again_in_this_build(shmbridge_run, tmp_path):
    """A build is what make starts, or here: what this process group starts."""
    for asked in (True, False):
        outcome = shmbridge_run("priority", "hangs", options=["--deadline", "0.3"])
        assert (outcome.status, outcome.asked > 0) == (0, asked)
        expect_plain_object(22, tmp_path)
    assert "was late less than" in outcome.stderr


@pytest.mark.programs_count
@pytest.mark.parametrize(
    ("policy", "how"), [("exits", "exit 3"), ("killed", "SIGKILL"), ("crashes", "SIGSEGV")]
)
def test_policy_process_that_ends_is_said_to_have_ended(policy, how, transport, tmp_path):
    run = [*run_words("evict,priority", policy, *transport), *clang(22, tmp_path)]
    done = subprocess.run(
        run, env=environment(tmp_path), stderr=subprocess.PIPE, text=True, timeout=120
    )
    assert done.returncode == 0
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("shmbridge: ")]
    reasons = re.findall(r"(?:evict|priority) \d+ of \d+: (.*?)(?=; priority|\)$)", line)
    assert reasons == [f"the policy process ended ({how})"] * len(reasons) and reasons, line
    expect_plain_object(22, tmp_path)


@pytest.mark.programs_count
@pytest.mark.parametrize(
    ("compiler", "transport"),
    [("clang-22", "preload"), ("clang-22", "pipes"), ("rustc", "preload")],
    indirect=["transport"],
)
def test_strict_leaves_no_output_where_a_decision_got_no_advice(compiler, shmbridge_run, tmp_path):
    used, out = compiler_of(compiler, tmp_path), tmp_path / "out.o"
    for policy, status in ("throws", 1), ("advise", 0):
        outcome = shmbridge_run("inline", policy, *used.command(out), options=["--strict"])
        assert (outcome.status, outcome.defaulted > 0, out.exists()) == (status, status, not status)
    outcome = shmbridge_run("inline", "throws", *used.command(out)[:-2], options=["--strict"])
    assert outcome.status == 1
    assert not list(tmp_path.glob("numbers*"))  # in the folder where it runs


@each_once
def test_strict_leaves_no_side_output_either(version, shmbridge_run, tmp_path):
    needs(f"clang-{version}")
    source = tmp_path / "more.c"
    shutil.copy(SOURCES / "more.c", source)
    before = {*tmp_path.iterdir()}
    flags = "-O2 -g -gsplit-dwarf -fsave-optimization-record -fstack-usage --coverage -ftime-trace"
    command = [f"clang-{version}", *flags.split(), f"-I{SOURCES}", "-MD", "-c", source]
    # With a default the compiler goes on to its end.
    options = ["--strict", "--default", "priority=0"]
    outcome = shmbridge_run("priority", "throws", *command, options=options)
    left = {path for path in tmp_path.iterdir() if not path.name.startswith(".shmbridge-builds")}
    assert (outcome.status, outcome.defaulted > 0, left) == (1, True, before)


# The second goes by Python.
either = pytest.mark.parametrize("kind", [[], ["--flags-for", "clang"]], ids=["native", "python"])


@either
def test_absent_host_leaves_the_plain_compilers_object(kind, shmbridge_run, tmp_path):
    outcome = shmbridge_run(ALL, None, options=["--connect", "nobody-is-here", *kind])
    assert (outcome.status, outcome.asked) == (0, 0)
    assert outcome.stderr.count("\n") == 1
    expect_plain_object(22, tmp_path)


@pytest.mark.parametrize("url", ["onnx:///no/model.onnx", "aot:///no/model.so"])
def test_missing_model_leaves_the_plain_compilers_object(url, shmbridge_run, tmp_path):
    outcome = shmbridge_run(ALL, None, options=["--connect", url])
    assert (outcome.status, outcome.advised) == (0, 0)
    expect_plain_object(22, tmp_path)


@pytest.mark.programs_count
@pytest.mark.parametrize("policy", ["inlines", "throws"])
def test_input_and_output_by_standard_streams_are_the_same_as_by_files(policy, tmp_path):
    """Also when the compiler has to run a second time."""
    used = compiler_of("opt-22", tmp_path)
    opt, (source, out) = used.command("out")[0], (tmp_path / "raw.bc", tmp_path / "out.bc")
    run = [*run_words("inline", policy), opt]
    env = environment(tmp_path)
    subprocess.run([*run, source, "-o", out], env=env, stderr=-1, check=True, timeout=60)
    piped = subprocess.run(
        run, input=source.read_bytes(), env=env, stdout=-1, stderr=-1, timeout=60
    )
    assert (piped.returncode, piped.stdout) == (0, out.read_bytes())


def test_user_chooses_the_default(shmbridge_run, tmp_path):
    made = {}
    for value in "01":
        outcome = shmbridge_run("inline", "throws", options=["--default", f"inline={value}"])
        assert outcome.status == 0
        made[value] = (tmp_path / "out.o").read_bytes()
    assert made["0"] != made["1"]


def test_llvm_22_tells_its_own_choice(shmbridge_run, tmp_path):
    outcome = shmbridge_run("inline", "opposite", options=["--include-default"])
    assert outcome.defaulted == 0
    opposite = (tmp_path / "out.o").read_bytes()
    assert opposite != Compiler("clang", "-22", tmp_path).plain(tmp_path / "plain.o").read_bytes()


@pytest.mark.programs_count
def test_what_was_asked_and_advised_is_recorded_and_makes_the_same_object_again(
    shmbridge_run, serve, name, tmp_path
):
    log, out = tmp_path / "log", tmp_path / "out.o"
    outcome = shmbridge_run(ALL, "advise", options=["--record", log])
    assert (outcome.status, outcome.stderr, outcome.defaulted) == (0, "", 0)
    logs = [TrainingLog(path) for path in sorted(tmp_path.glob("log*"))]
    assert sum(len(list(log)) for log in logs) == outcome.asked
    assert {log.layout.decision for log in logs} == set(ADVICE.values())
    advice = {
        log.layout.decision: iter([next(iter(record.advice.values())) for record in log])
        for log in logs
    }
    made = out.read_bytes()
    with serve(lambda request: next(advice[request["decision"]])):
        assert shmbridge_run(ALL, None, options=["--connect", name]).defaulted == 0
    assert out.read_bytes() == made


@either
def test_running_host_is_used(kind, shmbridge_run, serve, name, tmp_path):
    with serve(lambda request: 0, channels=4):
        outcome = shmbridge_run(
            "inline,priority", None, *clang(22, tmp_path), options=["--connect", name, *kind]
        )
    assert (outcome.status, outcome.defaulted) == (0, 0)
    assert outcome.asked > 0


# ---- The first decisions only ----


@pytest.mark.programs_count
@each_once
def test_limit_asks_about_the_first_decisions_of_all_files_together(
    version, shmbridge_run, tmp_path
):
    needs(f"clang-{version}")
    command = [f"clang-{version}", "-O2", "-c", SOURCES / "more.c", SOURCES / "numbers.c"]
    asked, log = {}, tmp_path / "questions"

    def made(limit):
        options = [] if limit is None else ["--limit", str(limit)]
        outcome = shmbridge_run("evict,priority", "advise", *command, options=options)
        assert (outcome.status, outcome.stderr, outcome.defaulted) == (0, "", 0)
        asked[limit] = log.read_text().splitlines() if limit != 0 else []
        assert outcome.asked == len(asked[limit])
        return (tmp_path / "numbers.o").read_bytes()

    unlimited, count = made(None), len(asked[None])
    assert made(count) == unlimited
    assert asked[count] == asked[None]
    for limit in (0, 300):
        made(limit)
        assert asked[limit] == asked[None][:limit]
    assert {line.split(" ")[1] for line in asked[300]} >= {"more", "pressure"}  # of two processes


def test_beyond_the_limit_inlining_is_llvms_own(shmbridge_run, tmp_path):
    made = [Compiler("clang", "-22", tmp_path).plain(tmp_path / "plain.o").read_bytes()]
    for options in (["--limit", "0"], ["--limit", "0", "--default", "inline=0"], ["--limit", "2"]):
        assert shmbridge_run("inline", "opposite", options=options).status == 0
        made.append((tmp_path / "out.o").read_bytes())
    assert made[0] == made[1] == made[2] != made[3]


VERDICT = "shmbridge: compiling without the policy (reported once per build): "


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (
            'int(request["calee_basic_block_count"][0] < 0)',
            ".*model.py:2: KeyError: .*did you mean 'callee_basic_block_count'.*",
        ),
        (
            'float(request["callee_basic_block_count"]) < 0',
            r".*model.py:2: TypeError: use request\['callee_basic_block_count'\].item\(\) .*",
        ),
        ("'yes'", ".* is a text, and the runner asked for a number .*: .* advise a number.*"),
    ],
)
def test_first_mistakes_are_reported_verdict_first(model, says, tmp_path):
    (tmp_path / "model.py").write_text(f"def advise(request):\n    return {model}\n")
    (tmp_path / "one.c").write_text("static int f(int x) { return x; } int g() { return f(1); }")
    words = [SHMBRIDGE, "run", "--llvm", "inline", "--host", "model:advise", "--"]
    words += ["clang-22", "-O2", "-c", "one.c"]
    env = environment(tmp_path)
    done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr.count("\n") == 1
    assert re.fullmatch(re.escape(VERDICT) + says, done.stderr.strip()), done.stderr
