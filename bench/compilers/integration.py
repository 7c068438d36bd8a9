"""What it takes to put the library into a compiler: lines, bytes, seconds.

    python bench integration [--json FILE]

For each plug-in of the examples: its lines of code, those among them that use the library, bytes of
the built file, seconds of CPU to build it. The library itself: its bytes. `deploy allocation` has the
memory of a compiler with each URL.
"""

from __future__ import annotations

import re
import resource
import tempfile
from pathlib import Path

from llvm_inliner import EXAMPLES, build_plugin
from program import SHMBRIDGE, cpu_used, options, report
from run import machine

PLUGINS = ("llvm/inliner", "phase_ordering", "loops", "unroll", "regalloc")
# The library's names, and the methods of its classes by which a pass asks.
USES = re.compile(
    r"shmb|\bRunner\b|\bAgents?\b|next_agent|populate|\bfeature<|evaluate|set_done|add_reward"
    r"|on_error|void reset\(|void step\(|\bAction\b|\bURL\b"
)


def lines(source: Path) -> list[str]:
    """Without empty lines and comments of a line."""
    stripped = (line.strip() for line in source.read_text().splitlines())
    return [line for line in stripped if line and not line.startswith("//")]


def main() -> None:
    given = options(__doc__).parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in PLUGINS:
            sources = [*(EXAMPLES / name).glob("*.cpp"), *(EXAMPLES / name).glob("*.h")]
            code = [line for source in sources for line in lines(source)]
            before = cpu_used(resource.RUSAGE_CHILDREN)
            built = build_plugin(22, Path(folder) / name, EXAMPLES / name)
            seconds = cpu_used(resource.RUSAGE_CHILDREN) - before
            using = sum(bool(USES.search(line)) for line in code)
            size = built.stat().st_size
            rows.append({"name": name, "lines": len(code), "using": using, "bytes": size, "seconds": seconds})  # fmt: skip
    library = next((Path(SHMBRIDGE).parents[1] / "lib").glob("python*/site-packages/shmbridge/**/libshmbridge.so*"))  # fmt: skip
    found = {"machine": machine(), "rows": rows, "library": library.stat().st_size}
    report("integration", found, given.json)


if __name__ == "__main__":
    main()
