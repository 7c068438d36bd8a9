"""Counts of long runs, from which reliability_page.py writes docs/reliability.md."""

import datetime
import json
import os
import re
from pathlib import Path

RESULTS = Path(__file__).parents[2] / "docs" / "results"
FILE = RESULTS / "reliability.json"


def record(name, **figures):
    """Replaces what an earlier run of this name counted."""
    found = json.loads(FILE.read_text()) if FILE.exists() else {}
    found[name] = {"date": f"{datetime.date.today()}", "cpus": os.cpu_count()} | figures
    text = json.dumps(found, indent=1, sort_keys=True)
    text = re.sub(r"(?<=[\[,]\n   )\{[^{}]*\}", lambda m: " ".join(m[0].split()), text)  # samples
    FILE.write_text(text + "\n")
