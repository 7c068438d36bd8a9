"""`shmbridge run` finds the compiler behind launchers, and goes round their caches."""

import shlex
import shutil
import subprocess

import pytest
from support.run import SHMBRIDGE, ended, everywhere

from shmbridge.cli._run import compiler_command
from shmbridge.errors import InvalidError

pytestmark = pytest.mark.usefixtures("nothing_is_left")


@pytest.mark.parametrize(
    ("command", "before", "behind"),
    [
        ("clang -c x.c", "", "clang -c x.c"),
        ("ccache clang -c x.c", "", "clang -c x.c"),
        ("/usr/bin/sccache clang++-22", "", "clang++-22"),
        ("ccache sloppiness=time_macros distcc clang -c x.c", "", "clang -c x.c"),
        ("env -u HOME A=/bin/clang clang", "env -u HOME A=/bin/clang", "clang"),
        (
            "nice -n 5 time -o log timeout 60 ccache clang -o clang",
            "nice -n 5 time -o log timeout 60",
            "clang -o clang",
        ),
        ("taskset 0x3 opt x.bc", "taskset 0x3", "opt x.bc"),
        ("{wrap} -q -x y clang -c clang", "{wrap} -q -x y", "clang -c clang"),
        ("ccache {wrap} env rustc", "{wrap} env", "rustc"),
    ],
)
def test_compiler_is_found_behind_launchers_and_caches_are_left_out(
    command, before, behind, compiler
):
    wrap = str(compiler("", name="wrap"))
    words = command.format(wrap=wrap).split()
    assert compiler_command.split(words) == (before.format(wrap=wrap).split(), behind.split())


def test_compiler_of_another_name_is_the_first_program_that_is_no_launcher(compiler):
    mine = str(compiler("", name="mycc"))
    assert compiler_command.split(["nice", "-n", "5", "ccache", mine, "-o", "clang"], "clang") == (
        ["nice", "-n", "5"],
        [mine, "-o", "clang"],
    )


@pytest.mark.parametrize("command", ["make clang", "nice -n 5 ninja clang"])
def test_a_build_tool_is_refused(command):
    with pytest.raises(InvalidError, match="--flags-for"):
        compiler_command.split(command.split())


@pytest.mark.parametrize(
    "command", ["{wrap} x.c clang", "env", "no-such-program clang", "ccache -s"]
)
def test_where_no_compiler_is_found_the_command_is_left_as_it_is(command, compiler):
    words = command.format(wrap=compiler("", name="wrap")).split()
    assert compiler_command.split(words) == ([], words)


@pytest.mark.parametrize("options", [[], ["--flags-for", "clang"]])
def test_flags_go_where_the_compiler_behind_launchers_reads_them(options, start, compiler):
    program = compiler('echo "$1 $#"; exit 42')
    wrap = [] if options else [compiler('exec "$@"', name="wrap")]
    command = ["env", "A=b", "ccache", *wrap, program, "-c", "x.c"]
    status, out, err = ended(start(*command, options=["--host", "my_policy:advise", *options]))
    assert (status, out, err) == (42, "--start-no-unused-arguments 8\n", "")


@everywhere
def test_caches_and_other_machines_are_told_to_stay_away(start, compiler):
    program = compiler('echo "$CCACHE_DISABLE $DISTCC_HOSTS $ICECC $BUILDCACHE_DISABLE"')
    assert ended(start(program))[1] == "1 localhost disable true\n"


@pytest.mark.parametrize("asks", [["--host", "my_policy:advise"], ["--connect", "nobody"]], ids=str)
@pytest.mark.parametrize("cache", ["ccache", "sccache"])
def test_cache_in_front_is_told_of_and_ccache_goes_without_its_cache(
    cache, asks, compiler, tmp_path
):
    # What ccache does first is preprocessing; if that fails it caches nothing.
    shutil.copy("/bin/sh", tmp_path / cache)
    (tmp_path / "my_policy.py").write_text("def advise(request): return 0")
    command = [SHMBRIDGE, "run", "--llvm", "inline", *asks, "--", compiler("echo made")]
    for words, expected in ([], "made\n"), (["-E"], "" if cache == "ccache" else "made\n"):
        script = f"{shlex.join(map(str, [*command, *words]))}; exit $?"
        words = [tmp_path / cache, "-c", script]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert (done.stdout, done.returncode) == (expected, 0 if expected else 1)
        assert f"{cache} before shmbridge run also reuses objects" in done.stderr
