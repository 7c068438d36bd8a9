"""The cost of `shmbridge run` for a small file, with a running host.

    python bench launch [--rounds N] [--json FILE]

Alternates `clang-22 -O2 -c` of 20 lines: plain; with `shmbridge run --llvm inline --connect NAME`;
the same through Python, as less common options run; `preload`, only the preloaded library and the
flags, without a process that starts or waits for it; and `inherits`, a compiler that inherits the
library and has no channel. Time is wall time; CPU is user + system of
all processes. Printed are the medians with quartiles, and the medians' ratios to plain.
"""

import os
import secrets
import statistics
import sysconfig
import tempfile
import threading
import time
from pathlib import Path

from bench.program import options, write
from shmbridge import Host, _config
from shmbridge._llvm import compilers

SOURCE = """
static int square(int x) { return x * x; }
static int cube(int x) { return x * square(x); }
static int sum(const int *x, int n) {
    int s = 0;
    for (int i = 0; i < n; i++)
        s += square(x[i]) - cube(x[i]);
    return s;
}
int least(const int *x, int n) {
    int m = x[0];
    for (int i = 1; i < n; i++)
        if (x[i] < m)
            m = x[i];
    return m;
}
int spread(const int *x, int n) {
    return sum(x, n) - n * square(least(x, n));
}
int twice(const int *x, int n) { return 2 * spread(x, n); }
"""


def ways(source: Path, name: str) -> dict[str, tuple[list[str], dict[str, str]]]:
    """By way: the command, and its environment."""
    scripts, out = Path(sysconfig.get_path("scripts")), f"{source}.o"
    clang = ["clang-22", "-O2", "-c", str(source), "-o", out]
    run = ["run", "--llvm", "inline", "--connect", name, "--", *clang]
    base = f"{source}.channel"
    preloaded = {
        "LD_PRELOAD": str(_config.preload()),
        "SHMBRIDGE_LLVM_BASE": base,
        "SHMBRIDGE_LLVM_URL": f"shm://{name}",
    }
    asking = compilers.with_flags(clang, "clang", {"inline": f"{base}.inline"}, pipes=False)
    plain = dict(os.environ)
    return {
        "plain": (clang, plain),
        "run": ([str(scripts / "shmbridge"), *run], plain),
        "python": ([str(scripts / "shmbridge-python"), *run], plain),
        "preload": (asking, plain | preloaded),
        "inherits": (clang, plain | preloaded),
    }


def once(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Seconds of time and of CPU."""
    begun = time.perf_counter()
    pid = os.posix_spawnp(command[0], command, environment)
    _, status, used = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"{command[0]} ended with status {status}")
    return time.perf_counter() - begun, used.ru_utime + used.ru_stime


def measure(rounds: int) -> tuple[dict[str, list[tuple[float, float]]], int]:
    """By way: time and CPU of each round; and how many questions the host answered."""
    asked = []
    with tempfile.TemporaryDirectory() as folder, Host(f"launch-{secrets.token_hex(4)}") as host:
        serving = threading.Thread(target=host.serve, args=(lambda request: asked.append(0) or 1,))
        serving.start()
        source = Path(folder) / "small.c"
        source.write_text(SOURCE)
        all_ways = ways(source, host.name)
        for command, environment in all_ways.values():
            once(command, environment)  # from here on, all files are in the page cache
        taken: dict[str, list[tuple[float, float]]] = {way: [] for way in all_ways}
        for number in range(rounds):
            for way in all_ways if number % 2 == 0 else reversed(all_ways):
                taken[way].append(once(*all_ways[way]))
        host.close()
        serving.join()
    return taken, len(asked)


def main() -> None:
    parser = options(__doc__, rounds=31)
    given = parser.parse_args()
    taken, asked = measure(max(given.rounds, 2))
    print(f"{given.rounds} rounds, {asked} questions; ms")
    for way, rounds in taken.items():
        for what, mine, plain in zip(
            ("time", "CPU"),
            zip(*rounds, strict=True),
            zip(*taken["plain"], strict=True),
            strict=True,
        ):
            low, middle, high = (seconds * 1e3 for seconds in statistics.quantiles(mine, n=4))
            ratio = statistics.median(mine) / statistics.median(plain)
            print(f"{way:10}{what:6}{middle:6.1f} ({low:.1f} to {high:.1f}){ratio:8.2f} x plain")
    write(given.json, {"questions": asked, "seconds": taken})


if __name__ == "__main__":
    main()
