"""examples/unroll: a plugin for clang-22 that asks about all loops of a function at once."""

import os
import shutil
import subprocess
import threading

import numpy as np
import pytest
from support.processes import printed

from shmbridge import Host

TOOLS = ("clang-22", "llvm-config-22", "cmake")
MISSING = [tool for tool in TOOLS if not shutil.which(tool)]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"no {', '.join(MISSING)}")
LOOP = "for (int i = 0; i < n; i++) {{ a[i] = b[i] * {0}; b[i] ^= {0}; }}"
SOURCE = "void f(int *a, int *b, int n) {{\n{}\n}}\n".format(
    "\n".join(LOOP.format(k) for k in range(3, 9))
)


@pytest.fixture(scope="module")
def plugin(tmp_path_factory, build_environment):
    folder = tmp_path_factory.mktemp("unroll")
    llvm = subprocess.check_output(["llvm-config-22", "--cmakedir"], text=True).strip()
    ours = subprocess.check_output(["shmbridge", "config", "--cmakedir"], text=True).strip()
    if not os.path.exists(f"{llvm}/LLVMConfig.cmake"):
        pytest.skip("no headers of LLVM 22")
    examples = subprocess.check_output(["shmbridge", "config", "--examples"], text=True).strip()
    flags = [f"-DLLVM_DIR={llvm}", f"-Dshmbridge_DIR={ours}"]
    env = {**os.environ, **build_environment}
    source = os.path.join(examples, "unroll")
    subprocess.run(["cmake", "-S", source, "-B", folder, *flags], check=True, env=env)
    subprocess.run(["cmake", "--build", folder], check=True, env=env)
    return folder / "shmbridge-unroll.so"


def compiled(plugin, folder, url):
    (folder / "file.c").write_text(SOURCE)
    command = ["clang-22", "-O2", "-fno-vectorize", f"-fpass-plugin={plugin}", "-c", "file.c"]
    done = printed(
        [*command, "-Rpass=loop-unroll"],
        cwd=folder,
        env={**os.environ, "SHMBRIDGE_URL": url},
        check=True,
    )
    return done.stderr


def test_a_function_asks_about_all_its_loops_at_once_and_clang_does_what_the_model_says(
    plugin, name, tmp_path
):
    loops = []
    with Host(name) as host:

        def serve():
            requests = [host.receive(60) for _ in range(6)]
            loops.extend(request["loop"].copy() for request in requests)
            for request in requests:
                request.reply(4)

        thread = threading.Thread(target=serve)
        thread.start()
        said = compiled(plugin, tmp_path, host.url)
        thread.join()
    assert said.count("unrolled loop by a factor of 4") == 6
    trips, depth, blocks, _, memory, calls = np.array(loops).T
    assert not trips.any() and (depth == 1).all() and (blocks == 1).all()
    assert (memory == 4).all() and not calls.any()


def test_without_a_model_clang_decides_and_one_warning_counts_the_loops(plugin, name, tmp_path):
    said = compiled(plugin, tmp_path, f"shm://{name}?connect_timeout=0")
    assert said.count("warning") == 1
    assert "6 loops are unrolled as LLVM decides" in said and "no host" in said
