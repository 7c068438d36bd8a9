"""What a side reads of a message in shared memory it reads once: what was checked is what is used,
though the other side may write there at any time."""

import collections
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.processes import printed

ROOT = Path(__file__).parents[2]
SEMAPHORE = range(128, 132)  # the host's, which is a hint and no message
WINDOWS = ["before", "request", "answer", "reply", "ask", "request", "answer", "reply"]


@pytest.mark.skipif(not shutil.which("valgrind"), reason="needs valgrind")
def test_each_byte_of_a_message_is_read_once(tmp_path):
    flags = ["-O2", "-g", "-pthread", "-D_GNU_SOURCE", '-DSHMB_VERSION_TEXT="test"']
    folders = [f"-I{ROOT}/{folder}" for folder in ("cdef/include", "cdef/src", "tests/c")]
    sources = [ROOT / "tests/cross/loads.c", *ROOT.glob("cdef/src/**/*.c")]
    subprocess.run(["cc", *flags, *folders, *sources, "-o", tmp_path / "loads"], check=True)
    trace = ["--tool=lackey", "--trace-mem=yes", f"--log-file={tmp_path / 'trace'}"]
    said = printed(["valgrind", *trace, tmp_path / "loads"], timeout=None, check=True).stdout
    maps = [[int(n, 16) for n in found] for found in re.findall(r"^map (\w+)-(\w+)", said, re.M)]
    mark = int(re.search(r"^mark (\w+)", said, re.M)[1], 16)
    assert len(maps) == 2  # the host's and the runner's
    windows = [collections.Counter()]
    for line in (tmp_path / "trace").open():
        if line[:3] not in (" L ", " M "):  # loads, and stores behind a load
            continue
        at, size = line[3:].split(",")
        at = int(at, 16)
        if at == mark:
            windows.append(collections.Counter())
        for start, end in maps:
            if start <= at < end:
                windows[-1].update(range(at - start, at - start + int(size)))
    for name, loads in zip(WINDOWS, windows, strict=False):
        if name in ("request", "reply"):
            assert len(loads) > 50  # a descriptor at least
            twice = {at for at, times in loads.items() if times > 1}
            assert not twice - {*SEMAPHORE}, name
