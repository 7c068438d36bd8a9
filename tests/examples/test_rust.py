"""The compiler in Rust asks by the C API, and goes on without a model."""

import shutil
import subprocess
from pathlib import Path

import pytest

from shmbridge import _config

SOURCE = Path(__file__).parents[2] / "examples/rust/ask.rs"


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    if not shutil.which("rustc"):
        pytest.skip("rustc is not installed")
    program = tmp_path_factory.mktemp("rust") / "ask"
    rustc = ["rustc", "--edition", "2021", "-D", "warnings", "-C", f"link-args={_config.libs()}"]
    subprocess.run([*rustc, SOURCE, "-o", program], check=True)
    return lambda url: subprocess.run([program, url], capture_output=True, text=True, check=True)


def test_rust_reads_the_advice(ask, name, serve):
    with serve(lambda request: int(request["features"][1] < 8)):
        said = ask(f"shm://{name}").stdout.splitlines()
    assert said == ["4 statements: inline", "8 statements: call", "12 statements: call"]


def test_rust_goes_on_without_a_model(ask, name):
    done = ask(f"shm://{name}")
    assert done.stdout.count("call") == 3 and "host" in done.stderr
