"""Policies of `shmbridge run` that fail, or are asked about the first decisions only: a right object comes of it."""

import re
import subprocess

import pytest
from support.stock import (
    ADVICE,
    ALL,
    SHMBRIDGE,
    SOURCES,
    Compiler,
    clang,
    environment,
    expect_right_object,
    needs,
)

from shmbridge.training_log import TrainingLog

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_is_left")]


@pytest.mark.parametrize("version", [22, 19])
@pytest.mark.parametrize("policy", ["throws", "wild", "silly"])
def test_policy_that_advises_nothing_of_use_is_replaced_each_time(
    policy, version, shmbridge_run, tmp_path
):
    outcome = shmbridge_run(ALL, policy, *clang(version, tmp_path))
    # -v tells of what the policy raised, and of advice that does not fit; llvm.c checks the rest
    assert outcome.status == 0 and ("Traceback" in outcome.stderr) == (policy == "throws")
    assert bool(outcome.stderr) == (policy != "wild")
    assert outcome.asked == outcome.defaulted > 100
    expect_right_object(version, tmp_path)


@pytest.mark.parametrize("version", [22, 19])
def test_eviction_that_the_mask_forbids_is_replaced(version, shmbridge_run, tmp_path):
    outcome = shmbridge_run("evict", "masked", *clang(version, tmp_path))
    assert outcome.status == 0
    assert outcome.asked >= outcome.defaulted > 0
    expect_right_object(version, tmp_path)


@pytest.mark.parametrize("version", [22, 19])
@pytest.mark.parametrize("policy", ["hangs", "killed"])
def test_policy_that_hangs_or_is_killed_leaves_the_rest_to_the_default(
    policy, version, shmbridge_run, tmp_path
):
    outcome = shmbridge_run(
        "priority", policy, *clang(version, tmp_path), options=["--deadline", "0.3"]
    )
    assert (outcome.status, outcome.stderr) == (0, "")
    assert outcome.asked - outcome.defaulted == 19
    expect_right_object(version, tmp_path)


@pytest.mark.parametrize(
    ("policy", "how"), [("exits", "exit 3"), ("killed", "SIGKILL"), ("crashes", "SIGSEGV")]
)
def test_policy_process_that_ends_is_said_to_have_ended(policy, how, transport, tmp_path):
    command = [
        SHMBRIDGE,
        "run",
        "--llvm",
        "evict,priority",
        "--host",
        f"policy:{policy}",
        *transport,
        "--",
    ]
    run = [*command, *clang(22, tmp_path)]
    done = subprocess.run(
        run, env=environment(tmp_path), stderr=subprocess.PIPE, text=True, timeout=120
    )
    assert done.returncode == 0
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("shmbridge: ")]
    reasons = re.findall(r"\d+ of \d+ (?:evict|priority): (.*?)(?=; \d|\)$)", line)
    assert reasons == [f"the policy process ended ({how})"] * len(reasons) and reasons, line
    expect_right_object(22, tmp_path)


def test_question_without_room_tells_the_option_that_gives_it(transport, tmp_path):
    command = [
        SHMBRIDGE,
        "run",
        "--llvm",
        "priority",
        "--host",
        "policy:advise",
        "--request-bytes",
        "64",
        *transport,
    ]
    run = [*command, "--", *clang(22, tmp_path)]
    done = subprocess.run(
        run, env=environment(tmp_path), stderr=subprocess.PIPE, text=True, timeout=120
    )
    assert (done.returncode, "(--request-bytes)" in done.stderr) == (0, True), done.stderr
    expect_right_object(22, tmp_path)


def test_strict_fails_where_a_decision_took_the_default(shmbridge_run, tmp_path):
    outcome = shmbridge_run("inline", "throws", *clang(22, tmp_path), options=["--strict"])
    assert (outcome.status, outcome.defaulted > 0) == (1, True)
    outcome = shmbridge_run("inline", "advise", *clang(22, tmp_path), options=["--strict"])
    assert (outcome.status, outcome.stderr, outcome.defaulted) == (0, "", 0)


# The second goes by Python.
either = pytest.mark.parametrize("kind", [[], ["--flags-for", "clang"]], ids=["native", "python"])


@either
def test_host_that_is_not_there_leaves_all_to_the_default(kind, shmbridge_run, tmp_path):
    outcome = shmbridge_run(
        ALL, None, *clang(22, tmp_path), options=["--connect", "nobody-is-here", *kind]
    )
    assert outcome.status == 0
    assert outcome.asked == outcome.defaulted > 0
    expect_right_object(22, tmp_path)


def test_user_chooses_the_default(shmbridge_run, tmp_path):
    made = {}
    for value in "01":
        assert (
            shmbridge_run(
                "inline", "throws", *clang(22, tmp_path), options=["--default", f"inline={value}"]
            ).status
            == 0
        )
        made[value] = (tmp_path / "out.o").read_bytes()
        expect_right_object(22, tmp_path)
    assert made["0"] != made["1"]


def test_llvm_22_tells_its_own_choice(shmbridge_run, tmp_path):
    command = clang(22, tmp_path)
    assert (
        shmbridge_run("inline", "opposite", *command, options=["--include-default"]).defaulted == 0
    )
    opposite = (tmp_path / "out.o").read_bytes()
    assert shmbridge_run("inline", "throws", *command, options=["--include-default"]).defaulted > 0
    assert opposite != (tmp_path / "out.o").read_bytes()


def test_what_was_asked_and_advised_is_recorded_and_makes_the_same_object_again(
    shmbridge_run, serve, name, tmp_path
):
    log, out = tmp_path / "log", tmp_path / "out.o"
    outcome = shmbridge_run(ALL, "advise", *clang(22, tmp_path), options=["--record", log])
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
        assert (
            shmbridge_run(ALL, None, *clang(22, tmp_path), options=["--connect", name]).defaulted
            == 0
        )
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


@pytest.mark.parametrize("version", [22, 19])
def test_limit_asks_about_the_first_decisions_of_all_files_together(
    version, shmbridge_run, tmp_path
):
    needs(f"clang-{version}")
    command = [f"clang-{version}", "-O2", "-c", SOURCES / "more.c", SOURCES / "numbers.c"]
    asked, log = {}, tmp_path / "questions"
    for limit in (0, 300, 10**6, None):
        options = [] if limit is None else ["--limit", str(limit)]
        outcome = shmbridge_run("evict,priority", "advise", *command, options=options)
        assert (outcome.status, outcome.stderr, outcome.defaulted) == (0, "", 0)
        asked[limit] = log.read_text().splitlines() if limit != 0 else []
        assert outcome.asked == len(asked[limit])
        made = (tmp_path / "numbers.o").read_bytes()
    assert {line.split(" ")[1] for line in asked[300]} >= {"more", "pressure"}  # of two processes
    assert asked[300] == asked[None][:300]
    assert asked[10**6] == asked[None]
    shmbridge_run("evict,priority", "advise", *command, options=["--limit", str(len(asked[None]))])
    assert (tmp_path / "numbers.o").read_bytes() == made


def test_beyond_the_limit_inlining_is_llvms_own(shmbridge_run, tmp_path):
    command = clang(22, tmp_path)
    made = [Compiler("clang", "-22", tmp_path).plain(tmp_path / "plain.o").read_bytes()]
    for options in (["--limit", "0"], ["--limit", "0", "--default", "inline=0"], ["--limit", "2"]):
        assert shmbridge_run("inline", "opposite", *command, options=options).status == 0
        made.append((tmp_path / "out.o").read_bytes())
    assert made[0] == made[1] == made[2] != made[3]
