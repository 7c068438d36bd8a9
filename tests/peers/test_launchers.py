"""Real caches and launchers about `shmbridge run`: never an old policy's object. (Debian: ccache, distcc.)"""

import os
import shutil
import subprocess

import pytest
from support.stock import SHMBRIDGE, SOURCES, needs

pytestmark = pytest.mark.slow
RUN = f"{SHMBRIDGE} run --llvm inline --host mine:advise -- "


@pytest.fixture
def build(tmp_path):
    """build(advice, *launcher): the object that a launcher makes when the policy advises this, and stderr."""
    needs("clang-22", "ccache")
    (tmp_path / "masked").mkdir()
    (tmp_path / "masked" / "clang-22").symlink_to(shutil.which("ccache"))
    script = tmp_path / "clang-script"
    script.write_text(f'#!/bin/sh\n{RUN}clang-22 "$@"\n')
    script.chmod(0o755)
    more_variables = {}
    variables = os.environ | {"CCACHE_DIR": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}

    def go(advice, launcher, *more):
        (tmp_path / "mine.py").write_text(f"def advise(request):\n    return {advice}\n")
        command = [*launcher.split(), "-O2", "-c", str(SOURCES / "numbers.c"), "-o", "out.o", *more]
        subprocess.run(["ccache", "-z"], env=variables, stdout=-1, check=True)
        done = subprocess.run(
            command, cwd=tmp_path, env=variables | more_variables, stderr=-1, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return (tmp_path / "out.o").read_bytes(), done.stderr

    go.variables = more_variables
    return go


@pytest.mark.parametrize(
    "launcher",
    [
        f"{RUN}ccache clang-22",
        f"{RUN}masked/clang-22",
        f"ccache {RUN}clang-22",
        "ccache ./clang-script",
    ],
)
def test_edited_policy_makes_another_object_whatever_ccache_keeps(launcher, build):
    made = [build(advice, launcher) for advice in (0, 1, 0)]
    assert [stderr for _, stderr in made] == ["", "", ""]
    assert made[0] == made[2] != made[1]


def test_cache_that_cannot_be_gone_round_is_told_of(build):
    build.variables["CCACHE_DEPEND"] = "1"
    assert "ccache in front keeps" in build(0, "ccache ./clang-script", "-MD")[1]


def test_distcc_sends_nothing_away(build):
    needs("distcc")
    build.variables["DISTCC_HOSTS"] = "no.such.machine"
    made = [build(advice, f"{RUN}distcc clang-22") for advice in (0, 1)]
    assert made[0] != made[1]
