"""python bench NAME [ARGUMENTS]: runs NAME.py of one of the folders. Its modules import those of all
folders, and so do the programs that it starts."""

import os
import runpy
import sys
from pathlib import Path

BENCH = Path(__file__).absolute().parent
FOLDERS = [BENCH, *sorted(folder for folder in BENCH.iterdir() if folder.is_dir())]

if __name__ == "__main__":
    found = [folder / f"{name}.py" for name in sys.argv[1:2] for folder in FOLDERS]
    scripts = [script for script in found if script.exists()]
    if not scripts:
        raise SystemExit(f"{__doc__}\n\nREADME.md lists the programs.")
    paths = [*map(str, FOLDERS), *filter(None, [os.environ.get("PYTHONPATH")])]
    sys.path[:0], os.environ["PYTHONPATH"] = paths, os.pathsep.join(paths)
    sys.argv = [str(scripts[0]), *sys.argv[2:]]
    runpy.run_path(sys.argv[0], run_name="__main__")
