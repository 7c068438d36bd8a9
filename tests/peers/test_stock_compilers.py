"""Unmodified opt, llc, clang and rustc take a Python policy's decisions, through `shmbridge run`: each compiler, decision and
transport; and whatever fails, a right object comes of it. (Debian: clang-22 llvm-22 clang-19 llvm-19; rustup.)
"""

import os
import re
import shutil
import signal
import subprocess
import sysconfig
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from shmbridge import Host, InvalidError
from shmbridge.training_log import TrainingLog

SOURCES = Path(__file__).parent / "stock"
CORE = Path(__file__).parents[2] / "cdef"
SHMBRIDGE = os.path.join(sysconfig.get_path("scripts"), "shmbridge")
ADVICE = {"inline": "inlining_decision", "evict": "index_to_evict", "priority": "priority"}
FEATURES = {"inline": 38, "evict": 21, "priority": 3}
ALL = "inline,evict,priority"
MAKES = {"clang": ALL, "opt": "inline", "llc": "evict,priority", "rustc": ALL}

pytestmark = pytest.mark.slow


def needs(*tools):
    for tool in tools:
        if not shutil.which(tool) or (tool == "rustc" and llvm_of_rustc() < 19):
            pytest.skip(
                f"no {tool} (Debian: clang-22 llvm-22 clang-19 llvm-19; rustc with LLVM 19 or later: rustup)"
            )


def llvm_of_rustc():
    said = subprocess.run(["rustc", "-vV"], stdout=subprocess.PIPE, text=True).stdout
    found = re.search(r"^LLVM version: (\d+)", said, re.MULTILINE)
    return int(found[1]) if found else 0


@pytest.fixture(params=["preload", "pipes"])
def transport(request):
    return [] if request.param == "preload" else ["--pipes"]


@dataclass
class Outcome:
    status: int
    stderr: str
    questions: Counter  # (decision, context, features): how often
    asked: int
    defaulted: int


@pytest.fixture
def shmbridge_run(transport, tmp_path):
    """shmbridge_run(decisions, policy, *command): how it went."""

    def go(decisions, policy, *command, options=()):
        log = tmp_path / "questions"
        log.unlink(missing_ok=True)
        host = ["--host", f"policy:{policy}"] if policy else []
        started = [
            SHMBRIDGE,
            "run",
            "-v",
            "--llvm",
            decisions,
            *host,
            *transport,
            *options,
            "--",
            *map(str, command),
        ]
        done = subprocess.run(
            started,
            env=environment(tmp_path),
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )
        found = re.search(
            r"^shmbridge: (\d+) of (\d+) decisions took the default advice.*\n",
            done.stderr,
            re.MULTILINE,
        )
        assert found, done.stderr
        lines = (
            [line.rsplit(" ", 2) for line in log.read_text().splitlines()] if log.exists() else []
        )
        questions = Counter(tuple(" ".join(line).split(" ")) for line in lines)
        rest = done.stderr.replace(found[0], "")
        return Outcome(
            done.returncode, rest, questions, asked=int(found[2]), defaulted=int(found[1])
        )

    return go


def environment(folder):
    return os.environ | {"QUESTIONS": str(folder / "questions"), "PYTHONPATH": str(SOURCES)}


@pytest.fixture(autouse=True)
def nothing_is_left():
    """No temporary file of ours, no bridge."""

    def files():
        return {*Path("/tmp").glob("shmbridge-*"), *Path("/dev/shm").glob("shmb.run-*")}

    before = files()
    yield
    wait_until(lambda: not files() - before)  # those of other programs may come and go


# ---- Each compiler makes an object, and a program of it ----


@dataclass
class Compiler:
    """What makes `out` of numbers.c or numbers.rs, and what that says when it runs."""

    kind: str
    version: str
    folder: Path

    def command(self, out):
        inputs = {
            "clang": SOURCES / "numbers.c",
            "opt": self.folder / "raw.bc",
            "llc": self.folder / "optimised.bc",
        }
        return {
            "clang": [f"clang{self.version}", "-O2", "-c", inputs["clang"], "-o", out],
            "opt": [f"opt{self.version}", inputs["opt"], "-o", out],
            "llc": [
                f"llc{self.version}",
                "-filetype=obj",
                "-relocation-model=pic",
                inputs["llc"],
                "-o",
                out,
            ],
            "rustc": ["rustc", "-O", "-Ccodegen-units=1", SOURCES / "numbers.rs", "-o", out],
        }[self.kind]

    def prepare(self):
        clang = [f"clang{self.version}", "-O2", "-emit-llvm", "-c", SOURCES / "numbers.c"]
        if self.kind == "opt":
            subprocess.run(
                [*clang, "-Xclang", "-disable-llvm-passes", "-o", self.folder / "raw.bc"],
                check=True,
            )
        if self.kind == "llc":
            subprocess.run([*clang, "-o", self.folder / "optimised.bc"], check=True)

    def plain(self, out):
        command = self.command(out)
        passes = ["-passes=scc-oz-module-inliner"] if self.kind == "opt" else []
        subprocess.run([command[0], *passes, *command[1:]], check=True)
        return out

    def says(self, out):
        """What the program made of `out` prints."""
        program = out
        if self.kind != "rustc":
            program = out.with_suffix(".program")
            bitcode = out.read_bytes()[:2] == b"BC"
            object_file = out.with_suffix(".bc") if bitcode else out
            if bitcode:
                shutil.copy(out, object_file)
            subprocess.run(
                [f"clang{self.version}", SOURCES / "main.c", object_file, "-o", program], check=True
            )
        return subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True).stdout


def compiler_of(name, folder):
    kind, _, version = name.partition("-")
    needs(name, *([f"clang-{version}"] if version else []))
    made = Compiler(kind, f"-{version}" if version else "", folder)
    made.prepare()
    return made


NAMES = ["clang-22", "clang-19", "opt-22", "opt-19", "llc-22", "llc-19", "rustc"]
CASES = [
    (name, decisions)
    for name in NAMES
    for decisions in dict.fromkeys(
        [*MAKES[name.partition("-")[0]].split(","), MAKES[name.partition("-")[0]]]
    )
]


@pytest.mark.parametrize(("compiler", "decisions"), CASES)
def test_policy_changes_what_is_made(compiler, decisions, shmbridge_run, tmp_path):
    used = compiler_of(compiler, tmp_path)
    plain, out = used.plain(tmp_path / "plain.o"), tmp_path / "out.o"
    policy = (
        "inlines" if used.kind == "opt" else "advise"
    )  # by itself it would inline nothing of this file
    outcome = shmbridge_run(decisions, policy, *used.command(out))
    assert (outcome.status, outcome.stderr, outcome.defaulted) == (0, "", 0)
    wanted = decisions.split(",")
    assert {decision for decision, _, _ in outcome.questions} == {
        ADVICE[decision] for decision in wanted
    }
    assert outcome.asked == outcome.questions.total() > 0
    assert {int(count) for _, _, count in outcome.questions} == {
        FEATURES[decision] + 2 for decision in wanted
    }
    assert out.read_bytes() != plain.read_bytes()
    assert used.says(out) == used.says(plain)


@pytest.mark.parametrize("compiler", ["clang-22", "llc-19", "rustc"])
def test_names_of_functions_reach_the_policy(compiler, shmbridge_run, tmp_path):
    used = compiler_of(compiler, tmp_path)
    outcome = shmbridge_run("evict,priority", "advise", *used.command(tmp_path / "out.o"))
    for decision in ("index_to_evict", "priority"):
        names = {context for asked, context, _ in outcome.questions if asked == decision}
        assert any("pressure" in name for name in names), names


@pytest.mark.parametrize("version", [22, 19])
def test_several_files_in_one_command(version, shmbridge_run, tmp_path):
    needs(f"clang-{version}")
    command = [f"clang-{version}", "-O2", "-c", SOURCES / "numbers.c", SOURCES / "more.c"]
    outcome = shmbridge_run(ALL, "advise", *command)
    assert (outcome.status, outcome.stderr, outcome.defaulted) == (0, "", 0)
    assert outcome.asked == outcome.questions.total()
    assert {"more", "numbers"} <= {context for _, context, _ in outcome.questions}
    program = [
        f"clang-{version}",
        SOURCES / "main.c",
        tmp_path / "numbers.o",
        tmp_path / "more.o",
        "-o",
        tmp_path / "both",
    ]
    subprocess.run(program, check=True)
    subprocess.run([tmp_path / "both"], check=True, stdout=subprocess.DEVNULL)


def test_rustc_with_many_codegen_units_asks(shmbridge_run, tmp_path):
    used = compiler_of("rustc", tmp_path)
    plain, out = used.plain(tmp_path / "plain"), tmp_path / "out"
    command = ["rustc", "-O", "-Ccodegen-units=16", SOURCES / "numbers.rs", "-o", out]
    outcome = shmbridge_run(
        ALL, "advise", *command
    )  # from threads, or with pipes from one after all
    assert (outcome.status, outcome.stderr, outcome.defaulted) == (0, "", 0)
    assert outcome.asked == outcome.questions.total() > 0
    assert used.says(out) == used.says(plain)


@pytest.mark.parametrize("version", [22, 19])
def test_file_that_needs_no_advice(version, shmbridge_run, tmp_path):
    needs(f"clang-{version}")
    outs = tmp_path / "plain.o", tmp_path / "out.o"
    commands = [[f"clang-{version}", "-O0", "-c", SOURCES / "more.c", "-o", out] for out in outs]
    subprocess.run(commands[0], check=True)
    outcome = shmbridge_run(ALL, "advise", *commands[1])
    assert (outcome.status, outcome.stderr, outcome.asked) == (0, "", 0)
    assert outs[0].read_bytes() == outs[1].read_bytes()


# ---- Compilers that fail ----


@pytest.mark.parametrize("compiler", ["clang-22", "clang-19", "rustc", "llc-22", "opt-19"])
def test_compiler_that_fails_keeps_its_status_and_its_words(compiler, shmbridge_run, tmp_path):
    needs(compiler)
    wrong = tmp_path / "wrong.c"
    wrong.write_text("int f(")
    words = ["-c", wrong] if compiler.startswith("clang") else [wrong]
    plain = subprocess.run([compiler, *words], stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    outcome = shmbridge_run(MAKES[compiler.partition("-")[0]], "advise", compiler, *words)
    assert outcome.status == plain.returncode != 0
    assert outcome.stderr == plain.stderr
    assert outcome.asked == 0


# ---- Policies that fail ----


def expect_right_object(version, tmp_path):
    used = Compiler("clang", f"-{version}", tmp_path)
    assert used.says(tmp_path / "out.o") == used.says(used.plain(tmp_path / "plain.o"))


def clang(version, tmp_path):
    needs(f"clang-{version}")
    return Compiler("clang", f"-{version}", tmp_path).command(tmp_path / "out.o")


@pytest.mark.parametrize("version", [22, 19])
@pytest.mark.parametrize("policy", ["throws", "wild", "silly"])
def test_policy_that_advises_nothing_of_use_is_replaced_each_time(
    policy, version, shmbridge_run, tmp_path
):
    outcome = shmbridge_run(ALL, policy, *clang(version, tmp_path))
    assert (outcome.status, outcome.stderr) == (0, "")
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


def test_host_that_is_not_there_leaves_all_to_the_default(shmbridge_run, tmp_path):
    outcome = shmbridge_run(
        ALL, None, *clang(22, tmp_path), options=["--connect", "nobody-is-here?connect_timeout=0"]
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


def test_running_host_is_used(shmbridge_run, serve, name, tmp_path):
    with serve(lambda request: 0, channels=4):
        outcome = shmbridge_run(
            "inline,priority", None, *clang(22, tmp_path), options=["--connect", name]
        )
    assert (outcome.status, outcome.defaulted) == (0, 0)
    assert outcome.asked > 0


# ---- Ends ----


def children(pid):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid and fields[0] != "Z":
                found += [int(stat.parent.name), *children(int(stat.parent.name))]
    return found


def wait_until(true):
    until = time.monotonic() + 20
    while not true():
        assert time.monotonic() < until, "waited for 20 seconds in vain"
        time.sleep(0.02)


@pytest.fixture
def stuck(transport, tmp_path):
    """A run whose policy hangs for good; the supervisor, and all processes that it has."""
    needs("clang-22")
    command = [
        SHMBRIDGE,
        "run",
        "--llvm",
        "priority",
        "--host",
        "policy:hangs",
        "--deadline",
        "0",
        *transport,
        "--",
    ]
    link = [
        "clang-22",
        "-O2",
        SOURCES / "numbers.c",
        SOURCES / "main.c",
        "-o",
        tmp_path / "out",
    ]  # in processes of its own
    running = subprocess.Popen([*command, *link], env=environment(tmp_path), start_new_session=True)
    wait_until(
        lambda: any(
            "-cc1" in Path(f"/proc/{pid}/cmdline").read_text() for pid in children(running.pid)
        )
    )
    processes = children(running.pid)
    yield running, processes
    running.kill()
    running.wait()
    for pid in processes:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def alive(pid):
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_compiler_and_then_the_run_in_the_same_way(stuck, number):
    running, processes = stuck
    os.killpg(running.pid, number)
    assert running.wait(20) == -number
    wait_until(lambda: not any(map(alive, processes)))


def test_killed_supervisor_leaves_no_process(stuck):
    running, processes = stuck
    running.kill()
    wait_until(lambda: not any(map(alive, processes)))


# ---- A project ----

MAKEFILE = """
CFLAGS = -O2 -std=c11 -D_GNU_SOURCE -DSHMB_VERSION_TEXT='"0"' -I{core}/include -I{core}/src -I{core}/../tests/c
vpath %.c {core}/src {core}/../tests/c
program: {objects}
\t$(CC) -o $@ $^ -lm -lrt -lpthread
"""


def test_make_with_several_jobs_makes_a_program_that_works(transport, tmp_path):
    needs("clang-22", "make")
    sources = [*(CORE / "src").glob("*.c"), CORE.parent / "tests" / "c" / "test_llvm_questions.c"]
    objects = " ".join(source.with_suffix(".o").name for source in sources)
    (tmp_path / "Makefile").write_text(MAKEFILE.format(core=CORE, objects=objects))
    launcher = " ".join(
        [SHMBRIDGE, "run", "--llvm", ALL, "--host", "policy:advise", *transport, "--", "clang-22"]
    )
    make = ["make", "-j4", f"CC={launcher}"]
    done = subprocess.run(
        make, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    subprocess.run([tmp_path / "program"], check=True)
    asked = Counter(
        line.split(" ")[0] for line in (tmp_path / "questions").read_text().splitlines()
    )
    assert asked.keys() == set(ADVICE.values())


# ---- Host("llvm://…") ----


@pytest.fixture
def llvm_host(tmp_path, in_thread):
    """llvm_host(model, query="", **options): a host whose loop runs in a thread until the test ends."""
    hosts = []

    def begin(model, query="", **options):
        host = Host(f"llvm://{tmp_path}/pair{query}", **options)
        hosts.append((host, in_thread(host.serve, model)))
        return host

    yield begin
    for host, serving in hosts:
        host.close()
        serving.result()


def compile_at(host, version, *decisions, source="numbers.c", folder):
    """Plain clang with the host's flags: its exit status."""
    compiler = f"clang-{version}"
    needs(compiler)
    command = [
        "timeout",
        "60",
        compiler,
        "-O2",
        "-c",
        SOURCES / source,
        "-o",
        folder / "out.o",
        *host.flags(compiler, *decisions),
    ]
    return subprocess.Popen(command)


@pytest.mark.parametrize("version", [22, 19])
def test_host_serves_one_pair_after_another(version, llvm_host, tmp_path):
    asked = Counter()

    def model(request):
        asked[request["decision"]] += 1
        return (
            0
            if request["decision"] != "index_to_evict"
            else int(request["mask"][0].nonzero()[0][0])
        )

    host = llvm_host(model)
    for decision in (
        "inline",
        "priority",
        "evict",
        "inline",
    ):  # the same pair for all of them, one after another
        assert compile_at(host, version, decision, folder=tmp_path).wait(60) == 0
        expect_right_object(version, tmp_path)
    assert asked.keys() == set(ADVICE.values())


@pytest.mark.parametrize("version", [22, 19])
def test_host_serves_several_pairs_at_once(version, llvm_host, tmp_path):
    asked = Counter()

    def model(request):
        asked[request["decision"]] += 1
        return {
            "inlining_decision": 0,
            "index_to_evict": int(request.get("mask", np.ones((1, 33)))[0].argmax()),
            "priority": 0.7,
        }[request["decision"]]

    host = llvm_host(model, f"?decisions={ALL}")
    assert compile_at(host, version, folder=tmp_path).wait(60) == 0
    assert asked.keys() == set(ADVICE.values())
    expect_right_object(version, tmp_path)


def test_model_that_raises_is_replaced_by_the_hosts_default(llvm_host, tmp_path):
    def model(request):
        raise ValueError("no idea")

    made = {}
    for value in (0, 1):
        host = llvm_host(model, "?decisions=inline", defaults={"inline": value})
        assert compile_at(host, 22, folder=tmp_path).wait(60) == 0
        made[value] = (tmp_path / "out.o").read_bytes()
        host.close()
    assert made[0] != made[1]


@pytest.mark.parametrize("version", [22, 19])
def test_host_that_closes_sees_its_compiler_out(version, llvm_host, tmp_path):
    asked = threading.Event()

    def model(request):
        asked.set()
        return 0

    host = llvm_host(model, "?decisions=priority")
    compiler = compile_at(host, version, folder=tmp_path)
    assert asked.wait(60)
    host.close()
    assert compiler.wait(60) == 0
    expect_right_object(version, tmp_path)
    assert not list(tmp_path.glob("pair*"))


def test_host_whose_program_ends_sees_its_compiler_out(python, tmp_path):
    needs("clang-22")
    code = """
        import shmbridge, subprocess, sys
        host = shmbridge.Host(f"llvm://{sys.argv[1]}/pair?decisions=priority")
        compiler = subprocess.Popen(["clang-22", "-O2", "-c", sys.argv[2], "-o", sys.argv[1] + "/out.o", *host.flags("clang-22")], stdout=subprocess.DEVNULL)
        print(compiler.pid, flush=True)
        for i, request in enumerate(host):
            request.reply(i)
            if i == 9:
                sys.exit()
        """
    process = python(code, tmp_path, SOURCES / "numbers.c")
    pid = int(process.line())
    try:
        assert process.end()[0] == 0
        wait_until(lambda: not alive(pid))
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    expect_right_object(22, tmp_path)


@pytest.mark.parametrize("url", ["llvm://", "llvm:///p?decisions=unroll", "llvm:///p?serdes=json"])
def test_wrong_urls_are_refused(url):
    with pytest.raises(InvalidError):
        Host(url)


def test_defaults_and_flags_belong_to_pipes(tmp_path):
    with pytest.raises(InvalidError, match="decisions=inline"):
        Host(f"llvm://{tmp_path}/pair", defaults={"inline": 0})
    with pytest.raises(InvalidError, match="0 or 1"):
        Host(f"llvm://{tmp_path}/pair?decisions=inline", defaults={"inline": 2})
    with Host(f"llvm://{tmp_path}/pair?decisions=inline,evict") as host:
        assert host.flags("llc-22") == [
            "-regalloc-enable-advisor=release",
            f"-regalloc-evict-interactive-channel-base={tmp_path}/pair.evict",
        ]
        with pytest.raises(InvalidError, match="not for priority"):
            host.flags("llc-22", "priority")
    with Host(f"llvm://{tmp_path}/pair") as host, pytest.raises(InvalidError):
        host.flags("clang-22")
    assert not list(tmp_path.iterdir())
