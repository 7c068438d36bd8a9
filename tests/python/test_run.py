"""`shmbridge run` as a supervisor, with programs that are called like compilers and ask nothing: what passes through, what ends
how, what is left. tests/peers/test_stock_compilers.py has the real ones."""

import os
import signal
import subprocess
import sysconfig
import textwrap
import time
from pathlib import Path

import pytest

from shmbridge import llvm
from shmbridge.cli.run import runner_url, summary
from shmbridge.cli.supervise import Count
from shmbridge.errors import InvalidError

SHMBRIDGE = os.path.join(sysconfig.get_path("scripts"), "shmbridge")


@pytest.fixture(autouse=True)
def nothing_is_left():
    def files():
        return {*Path("/tmp").glob("shmbridge-*"), *Path("/dev/shm").glob("shmb.run-*")}

    before = files()
    yield
    until = time.monotonic() + 10  # those of other programs may come and go
    while files() - before and time.monotonic() < until:
        time.sleep(0.05)
    assert files() - before == set()


@pytest.fixture(params=["preload", "pipes"])
def transport(request):
    return [] if request.param == "preload" else ["--pipes"]


@pytest.fixture
def compiler(tmp_path):
    """compiler(script, name="clang"): a shell script of that name."""

    def make(script, name="clang"):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    return make


@pytest.fixture
def start(transport, tmp_path):
    """start(*command, policy=..., options=()): a run under way, whose policy is that Python code with a function advise."""
    started = []

    def begin(
        *command,
        policy="def advise(request): return 0",
        options=("--host", "my_policy:advise"),
        **more,
    ):
        (tmp_path / "my_policy.py").write_text(textwrap.dedent(policy))
        words = [
            SHMBRIDGE,
            "run",
            "--llvm",
            "inline",
            *options,
            *transport,
            "--",
            *map(str, command),
        ]
        more = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "stdin": subprocess.DEVNULL,
            "text": True,
            **more,
        }
        started.append(subprocess.Popen(words, cwd=tmp_path, **more))
        return started[-1]

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ended(process, text=None):
    """(exit status, stdout, stderr)"""
    out, err = process.communicate(text, timeout=60)
    return process.returncode, out, err


# ---- What passes through ----


def test_exit_status_output_and_input_are_the_compilers(start, compiler):
    program = compiler('cat; echo "to stderr" >&2; exit 42')
    assert ended(start(program, stdin=subprocess.PIPE), "to stdin\n") == (
        42,
        "to stdin\n",
        "to stderr\n",
    )


def test_arguments_follow_the_flags_as_they_are(start, compiler, tmp_path):
    program = compiler('for word; do printf "%s\\n" "$word"; done')
    status, out, err = ended(start(program, "-O2", "a b", "--", "--help", "-v", ""))
    assert (status, err) == (0, "")
    words = out.removesuffix("\n").split("\n")
    assert words[-6:] == ["-O2", "a b", "--", "--help", "-v", ""]
    assert words[0] == "--start-no-unused-arguments"
    assert words[5] == "--end-no-unused-arguments"
    assert words[4].startswith("-inliner-interactive-channel-base=/")


def test_descriptors_that_were_inherited_stay_open(start, compiler):
    read, write = os.pipe()
    try:
        assert ended(start(compiler(f"echo hello > /proc/self/fd/{write}"), pass_fds=[write])) == (
            0,
            "",
            "",
        )
        assert os.read(read, 10) == b"hello\n"
    finally:
        os.close(read)
        os.close(write)


def test_what_the_policy_prints_goes_to_stderr(start, compiler):
    policy = """
        import sys
        print("loaded")
        def advise(request): return 0
        """
    status, out, err = ended(start(compiler("echo compiled"), policy=policy))
    assert (status, out, err) == (0, "compiled\n", "loaded\n")


def test_policy_ends_in_peace(start, compiler):
    policy = """
        import atexit
        atexit.register(lambda: print("goodbye"))
        def advise(request): return 0
        """
    assert ended(start(compiler(""), policy=policy)) == (0, "", "goodbye\n")


def test_nothing_is_asked(start, compiler):
    status, _, err = ended(start(compiler(""), options=["--host", "my_policy:advise", "-v"]))
    assert (status, err) == (0, "shmbridge: 0 of 0 decisions took the default advice\n")


# ---- What cannot be ----


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ("import no_such_module", "No module named 'no_such_module'"),
        ("raise ValueError('the model is gone')", "the model is gone"),
        ("raise SystemExit('not today')", "not today"),
        ("advise = 7", "expected a function, found int"),
        ("", "has no attribute 'advise'"),
    ],
)
def test_policy_that_cannot_be_loaded_ends_the_run_before_the_compiler_starts(
    policy, why, start, compiler, tmp_path
):
    status, out, err = ended(start(compiler("touch started"), policy=policy))
    assert (status, out) == (1, "")
    assert why in err
    assert not (tmp_path / "started").exists()


def test_policy_that_is_killed_while_it_loads_ends_the_run(start, compiler):
    policy = "import os; os.kill(os.getpid(), 9)"
    assert ended(start(compiler("exit 3"), policy=policy))[:2] == (1, "")


def test_unknown_compiler_is_told_what_to_do(start, compiler):
    status, _, err = ended(start(compiler("exit 3", name="mycc")))
    assert status == 1
    assert "--flags-for" in err
    assert (
        ended(
            start(
                compiler("exit 3", name="mycc"),
                options=["--flags-for", "llc", "--host", "my_policy:advise"],
            )
        )[0]
        == 1
    )  # no inlining
    assert (
        ended(
            start(
                compiler("exit 3", name="mycc"),
                options=["--flags-for", "opt", "--host", "my_policy:advise"],
            )
        )[0]
        == 3
    )


def test_missing_compiler_is_what_a_shell_says_it_is(start):
    status, _, err = ended(start("/no/such/clang"))
    assert (status, err) == (127, "shmbridge: /no/such/clang: no such compiler\n")


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--host", "my_policy:advise", "--connect", "x"],
        ["--host", "my_policy"],
        ["--host", "my_policy:advise", "--default", "inline=2"],
        ["--host", "my_policy:advise", "--default", "unroll=1"],
        ["--host", "my_policy:advise", "--llvm", "unroll"],
        ["--host", "my_policy:advise", "--deadline", "-1"],
        ["--host", "my_policy:advise", "--default", "evict=0"],  # which is not asked about
        ["--connect", "x", "--record", "log"],
    ],
)
def test_wrong_options_are_refused(options, start, compiler):
    status, out, err = ended(start(compiler("exit 3"), options=options))
    assert status in (1, 2)
    assert "xpected" in err or "not in the range" in err or "goes with" in err, err


def test_record_that_cannot_be_made_ends_the_run_with_a_line(start, compiler):
    options = ["--host", "my_policy:advise", "--record", "no_such_folder/log"]
    status, out, err = ended(start(compiler("echo started"), options=options))
    assert (status, out, err.count("\n")) == (1, "", 1), err
    assert "no_such_folder/log" in err


# ---- How it ends ----


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
def test_compiler_that_a_signal_ends_takes_the_run_with_it(number, start, compiler):
    assert ended(start(compiler(f"kill -{int(number)} $$")))[0] == -number


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_are_the_compilers(number, start, compiler):
    process = start(
        compiler(
            f"trap 'echo caught; exit 9' {int(number)}; echo ready; while :; do sleep 0.01; done"
        )
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert ended(process)[:2] == (9, "caught\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_while_the_policy_loads_ends_the_run(number, start, compiler, tmp_path):
    policy = """
        import time
        print("loading", flush=True)
        time.sleep(1000)
        """
    process = start(compiler("touch started"), policy=policy)
    assert process.stderr.readline() == "loading\n"
    process.send_signal(number)
    assert ended(process)[0] == -number
    assert not (tmp_path / "started").exists()


def test_policy_that_loads_for_ever_ends_with_a_killed_run(start, compiler):
    policy = """
        import time
        print("loading", flush=True)
        time.sleep(1000)
        """
    process = start(compiler("exit 3"), policy=policy)
    assert process.stderr.readline() == "loading\n"
    process.kill()
    assert ended(process)[0] == -signal.SIGKILL  # its output ends, so nobody has it


def test_policy_that_hangs_does_not_keep_the_run(start, compiler):
    policy = """
        import threading, time
        def advise(request): return 0
        import atexit
        atexit.register(time.sleep, 1000)
        """
    assert ended(start(compiler("exit 5"), policy=policy))[0] == 5


# ---- Flags ----


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("clang", "clang"),
        ("clang-22", "clang"),
        ("/usr/lib/llvm-19/bin/clang++", "clang"),
        ("clang++-19", "clang"),
        ("x86_64-linux-gnu-clang-22", "clang"),
        ("opt-22.1", "opt"),
        ("llc", "llc"),
        ("rustc", "rustc"),
    ],
)
def test_compilers_are_known_by_name(name, kind):
    assert llvm.kind_of(name) == kind


@pytest.mark.parametrize(
    "name", ["make", "gcc", "clang-format", "", "clang-", "optician", "clippy-driver"]
)
def test_others_are_not(name):
    with pytest.raises(InvalidError, match="--flags-for"):
        llvm.kind_of(name)


def test_flags_stand_where_each_compiler_wants_them():
    bases = {"evict": "/b"}
    plain = ["-regalloc-enable-advisor=release", "-regalloc-evict-interactive-channel-base=/b"]
    behind = ["-mllvm", plain[0], "-mllvm", plain[1]]
    assert llvm.with_flags(["llc", "x"], "llc", bases) == ["llc", *plain, "x"]
    joined = "-Cllvm-args=" + " ".join(plain)
    assert llvm.with_flags(["rustc", "x"], "rustc", bases, pipes=False) == ["rustc", "x", joined]
    assert llvm.with_flags(["rustc", "x"], "rustc", bases) == [
        "rustc",
        "x",
        joined,
        "-Ccodegen-units=1",
    ]
    assert llvm.with_flags(["clang", "-cc1", "x"], "clang", bases) == [
        "clang",
        "-cc1",
        *behind,
        "x",
    ]
    assert llvm.with_flags(["clang", "-cc1as", "x"], "clang", bases) == ["clang", "-cc1as", "x"]
    assert llvm.with_flags(["clang"], "clang", bases) == [
        "clang",
        "--start-no-unused-arguments",
        *behind,
        "--end-no-unused-arguments",
    ]


@pytest.mark.parametrize("passes", ["-passes=default<O2>", "--passes=inline", "-passes"])
def test_opt_gets_an_inliner_unless_it_is_told_its_passes(passes):
    bases = {"inline": "/b"}
    assert llvm.OPT_PASSES in llvm.with_flags(["opt", "x.bc"], "opt", bases)
    assert llvm.OPT_PASSES not in llvm.with_flags(["opt", passes, "x.bc"], "opt", bases)


def test_compilers_own_choice_can_be_told_since_llvm_22():
    assert llvm.INCLUDE_DEFAULT in llvm.with_flags(
        ["clang-22"], "clang", {"inline": "/b"}, include_default=True
    )
    assert llvm.INCLUDE_DEFAULT not in llvm.with_flags(
        ["clang-22"], "clang", {"evict": "/b"}, include_default=True
    )
    with pytest.raises(InvalidError, match="LLVM 22"):
        llvm.with_flags(["clang-19"], "clang", {"inline": "/b"}, include_default=True)


def test_only_what_a_compiler_decides_is_asked():
    assert llvm.asked_of("clang", ["priority", "inline", "inline"]) == ["priority", "inline"]
    assert llvm.asked_of("llc", ["inline", "evict"]) == ["evict"]
    with pytest.raises(InvalidError, match="llc does not decide on inline"):
        llvm.asked_of("llc", ["inline"])


@pytest.mark.parametrize(
    "default", ["inline=1", "evict=32", "evict=0", "priority=-0.5", "priority=1e3"]
)
def test_defaults_that_may_be(default):
    llvm.check_default(*default.split("="))


@pytest.mark.parametrize(
    "default",
    [
        "inline=-1",
        "inline=",
        "evict=33",
        "evict=0.5",
        "priority=nan",
        "priority=1e999",
        "x=0",
        "inline=1 ",
    ],
)
def test_defaults_that_may_not(default):
    with pytest.raises(InvalidError, match="expected"):
        llvm.check_default(*default.split("="))


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("b", "shm://b?connect_timeout=1.0&deadline=0.500000000"),
        ("b?deadline=2", "shm://b?deadline=2&connect_timeout=1.0"),
        (
            "shm://b?connect_timeout=3&wait=spin",
            "shm://b?connect_timeout=3&wait=spin&deadline=0.500000000",
        ),
    ],
)
def test_what_a_url_says_wins(name, url):
    assert runner_url(name, 0.5) == url


def test_summary_tells_why_for_each_decision():
    counts = [
        Count("inline", 5, 0),
        Count("evict", 7, 2, "it\nhangs"),
        Count("evict", 1, 1, "other"),
    ]
    assert summary(counts) == (
        "shmbridge: 3 of 13 decisions took the default advice (3 of 8 evict: it hangs)",
        3,
    )
