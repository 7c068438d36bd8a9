"""python bench NAME [ARGUMENTS]: runs the module NAME of this package. README.md lists the programs."""

import runpy
import sys
from pathlib import Path

BENCH = Path(__file__).absolute().parent
MODULES = {file.stem: file.relative_to(BENCH.parent) for file in BENCH.rglob("[!_]*.py")}

if __name__ == "__main__":
    if not (file := MODULES.get("".join(sys.argv[1:2]))):
        raise SystemExit(__doc__)
    # At the end, because `import shmbridge` is to find the installed package; tests has `support`,
    # which builds small models.
    sys.path += [str(BENCH.parent), str(BENCH.parent / "tests")]
    del sys.argv[0]
    runpy.run_module(".".join(file.with_suffix("").parts), run_name="__main__", alter_sys=True)
