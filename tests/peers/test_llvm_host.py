"""Host("llvm://…") for an unmodified clang."""

import os
import signal
import subprocess
import threading
from collections import Counter
from contextlib import suppress

import numpy as np
import pytest
from support.processes import alive, until
from support.stock import ADVICE, ALL, SOURCES, expect_right_object, needs

from shmbridge import Host, InvalidError

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_is_left")]


@pytest.fixture
def llvm_host(tmp_path, in_thread):
    """llvm_host(model, query="", **options): a host whose loop runs in a thread until the test
    ends."""
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
    plain = [compiler, "-O2", "-c", SOURCES / source, "-o", folder / "out.o"]
    command = ["timeout", "60", *plain, *host.flags(compiler, *decisions)]
    return subprocess.Popen(command)


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
        compiler = subprocess.Popen(["clang-22", "-O2", "-c", sys.argv[2], "-o",
            sys.argv[1] + "/out.o", *host.flags("clang-22")], stdout=subprocess.DEVNULL)
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
        until(lambda: not alive(pid))
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
