"""Counts of long runs, from which reliability_page.py writes docs/reliability.md."""

import datetime
import json
import os
import re
import subprocess
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parents[2] / "docs" / "results"
FILE = RESULTS / "reliability.json"


def source():
    """When, where and of which commit something is counted."""
    models = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    command = ["git", "-C", RESULTS, "rev-parse", "--short=8", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    cpu = models[0] if models else os.uname().machine
    return {
        "date": f"{datetime.date.today()}",
        "commit": commit,
        "cpu": cpu,
        "cpus": os.cpu_count(),
    }


def spread(seconds):
    """Of times, in ms."""
    ms = np.array(seconds) * 1e3
    found = {"median": np.median(ms), "p99": np.percentile(ms, 99), "most": ms.max()}
    return {key: round(float(value), 1) for key, value in found.items()}


def record(name, **figures):
    """Replaces what an earlier run of this name counted."""
    found = json.loads(FILE.read_text()) if FILE.exists() else {}
    found[name] = source() | figures
    text = json.dumps(found, indent=1, sort_keys=True)
    text = re.sub(r"(?<=[\[,]\n   )\{[^{}]*\}", lambda m: " ".join(m[0].split()), text)  # samples
    FILE.write_text(text + "\n")
