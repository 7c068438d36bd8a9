"""Eleven ways in which a compilation with advice was once lost, hung, or lied; each on one file."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).absolute().parent
PLAIN, ADVISED = "plain", "advised"
SOURCE = """
extern int seen;
static int work(int n) { int s = 0; for (int i = 0; i < n; i++) s += i * seen; return s; }
int twice(int n) { return work(n) + work(n + 1); }
"""
REFUSED = """
void bad(void) __attribute__((error("bad")));
static int at(const int *p, unsigned i, unsigned end) { if (i >= end) bad(); return p[i]; }
int one(const int *p, unsigned n) { return at(p, n & 7, (n & 7) + 1) + at(p, n & 3, (n & 3) + 1); }
"""
MODEL = """
import sys
import numpy as np
from onnx import TensorProto as T, helper as h, numpy_helper, save
def model(nodes, inputs, more):
    values = [h.make_tensor_value_info(name, kind, shape) for name, kind, shape in inputs]
    out = [h.make_tensor_value_info("y", T.FLOAT, [1] if more else [3])]
    graph = h.make_graph(nodes, "g", values, out, more)
    save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), "m.onnx")
if sys.argv[1] == "gather":
    table = numpy_helper.from_array(np.arange(4, dtype=np.float32), "table")
    model([h.make_node("Gather", ["table", "i"], ["y"])], [("i", T.INT64, [1])], [table])
else:
    model([h.make_node("Add", ["x", "v"], ["y"])],
          [("x", T.FLOAT, [3]), ("v", T.FLOAT, [])], [])
"""
ASK = """
import shmbridge, numpy as np
try:
    with shmbridge.connect("aot://./m.so") as runner: print(runner.evaluate({"i": np.array([9])}))
except shmbridge.ShmbridgeError: pass
else: raise SystemExit("an index outside was answered")
"""
ASSEMBLER = """
#include <stdlib.h>
#include <unistd.h>
int main(int n, char **words) {
    (void)n;
    return getenv("LD_PRELOAD") ? 7 : execvp("as", words);
}
"""
VANDAL = """
import mmap, os, sys, time
sys.path.insert(0, sys.argv[2])
from pure_python.segment import H_SEMAPHORE, R_SEMAPHORE
with open("/dev/shm/shmb." + sys.argv[1], "r+b") as file: m = mmap.mmap(file.fileno(), 0)
while os.getppid() != 1:
    for at in H_SEMAPHORE, R_SEMAPHORE: m[at:at + 8] = os.urandom(8)
    time.sleep(0.0001)
"""


CC, TEXT = "clang-22 -O2 -c a.c -o", "objcopy -O binary -j .text"
ONCE = "clang-22 -O2 -x c -c"
RECORDED = "clang-22 -O2 -g -grecord-command-line -frecord-command-line -c a.c -o"
OLD = next((name for name in ("clang-16", "clang-15", "clang-14") if shutil.which(name)), "")


@dataclass
class Row:
    """A command of bash, in a folder of its own, which writes out.o if it compiles anything. $RUN:
    shmbridge run with a policy that works; $RAISES: with one that raises."""

    number: int
    what: str
    command: str
    expected: str  # which object, if any
    lines: int = 1  # at most, of shmbridge on stderr
    files: tuple[tuple[str, str], ...] = ()
    plain: str = f"{CC} plain.o"  # makes the plain compiler's object
    skipped: str = ""  # because of this


ROWS = [
    Row(1, "LLVM fails after a question", f"$NEVER {CC} out.o", PLAIN, 1, (("a.c", REFUSED),)),
    Row(2, "LLVM does not know a flag", f"$RUN {OLD} -O2 -c a.c -o out.o", PLAIN,
        plain=f"{OLD} -O2 -c a.c -o plain.o", skipped="" if OLD else "clang-16 is not installed"),
    Row(3, "a source to be read once", f"cat a.c | $RAISES {ONCE} /dev/stdin -o out.o && "
        f"mkfifo f && {{ cat a.c > f & }} && $RAISES {ONCE} f -o f.o && "
        f"$RAISES {ONCE} <(cat a.c) -o g.o && $RAISES {ONCE} a.c -o /dev/stdout | cat > h.o && "
        f"{TEXT} out.o out.t && for o in f g h; do {TEXT} $o.o $o.t && cmp $o.t out.t || exit; "
        "done", PLAIN, 4, plain=f"cat a.c | {ONCE} /dev/stdin -o plain.o"),
    Row(4, "an index outside a table", "$PYTHON model.py gather && if $SHMBRIDGE compile m.onnx "
        "-o m.so; then $PYTHON ask.py; else test $? = 1; fi", "", 1,
        (("model.py", MODEL), ("ask.py", ASK))),
    Row(5, "an input of rank 0", "$PYTHON model.py rank && $SHMBRIDGE compile m.onnx -o m.so "
        "| grep -q checked && ! $SHMBRIDGE compile m.onnx -o m.so | grep -q 'not checked'", "", 1,
        (("model.py", MODEL),)),
    Row(6, "bytes in the semaphores", "$SHMBRIDGE serve $NAME --background --python $POLICIES:"
        f"healthy && {{ $PYTHON vandal.py $NAME $TESTS & $CONNECT {CC} out.o; S=$?; kill $!; "
        "$SHMBRIDGE stop $NAME; exit $S; }", ADVISED, 1, (("vandal.py", VANDAL),)),
    Row(7, "few descriptors or processes", "chmod 711 ..; chmod 777 . tmp; for few in nofile=7 "
        f"nproc={{1,2,3}}; do $SOMEBODY prlimit --$few $RUN {CC} $few.o && cmp $few.o *7.o || "
        "exit; done; mv *7.o out.o", PLAIN, 4),
    Row(8, "a stranger's state", f"SHMBRIDGE_RUN_ENDED='0 0' $RUN {CC} out.o", ADVISED),
    Row(9, "an assembler without us", "cc -static as.c -o as && "
        f"$RUN {CC} out.o -fno-integrated-as -B .", ADVISED, 0, (("as.c", ASSEMBLER),)),
    Row(10, "a recorded command line", "for how in '' --pipes; do for n in 1 2; do "
        f"${{RUN% --}} $how -- {RECORDED} out.o && mv out.o $n.o || exit; done; "
        f"cmp 1.o 2.o && {TEXT} 1.o out.o || exit; done",
        ADVISED, plain=f"{RECORDED} p.o && {TEXT} p.o plain.o"),
    Row(11, "what --strict leaves", f"! $STRICT {CC} out.o -ftime-trace -gsplit-dwarf "
        "-fstack-usage -ftest-coverage -fsave-optimization-record && "
        "test \"$(echo *)\" = 'a.c tmp'", "", 2),
]  # fmt: skip


def check_fault(row, folder, shmbridge):
    """Prints the row of one fault, and returns whether it passed."""
    if row.skipped:
        print(f"{row.number:2}. {row.what:30}{'-':>12}  {row.skipped}")
        return True
    (folder / "tmp").mkdir(parents=True)
    (folder / "a.c").write_text(SOURCE)
    for name, text in row.files:
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    run = f"{shmbridge} run --llvm inline --host {HERE / 'policies.py'}"
    environment = {
        "RUN": f"{run}:healthy --",
        "NEVER": f"{run}:never --",
        "RAISES": f"{run}:raising --",
        "STRICT": f"{run}:raising --strict --",
        "CONNECT": f"{shmbridge} run --llvm inline --connect faults-{os.getpid()} --",
        "NAME": f"faults-{os.getpid()}",
        "POLICIES": str(HERE / "policies.py"),
        "PYTHON": sys.executable,
        "SHMBRIDGE": shmbridge,
        "SOMEBODY": "" if os.geteuid() else "setpriv --reuid=64321 --clear-groups",
        "TESTS": str(HERE.parent),
        "TMPDIR": str(folder / "tmp"),
        "XDG_STATE_HOME": str(folder / "tmp"),
        "XDG_RUNTIME_DIR": str(folder / "tmp"),
    }
    words = dict(cwd=folder, env=os.environ | environment, stdin=subprocess.DEVNULL)
    faults, said = [], ""
    try:
        done = subprocess.run(
            ["bash", "-c", row.command], **words, timeout=120, capture_output=True, text=True
        )
        said = done.stderr
        if done.returncode:
            faults.append(f"exit status {done.returncode}: {said[-300:]}")
    except subprocess.TimeoutExpired:
        faults.append("still running after 120 s")
    ours = [line for line in said.splitlines() if line.startswith("shmbridge:")]
    if len(ours) > row.lines:
        faults.append(f"{len(ours)} lines: {ours}")
    made = (folder / "out.o").read_bytes() if (folder / "out.o").exists() else b""
    if row.expected and not made:
        faults.append("no object")
    if made and row.expected:
        subprocess.run(["bash", "-c", row.plain], **words, check=True)
        if (made == (folder / "plain.o").read_bytes()) != (row.expected == PLAIN):
            faults.append(f"the object is not {row.expected}")
    print(f"{row.number:2}. {row.what:30}{row.expected or '-':>12}{len(ours):>8}  "
          f"{'FAIL' if faults else 'pass'}")  # fmt: skip
    print("".join(f"    {fault}\n" for fault in faults), end="", flush=True)
    return not faults
