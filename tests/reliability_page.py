"""Writes the tables of docs/reliability.md from docs/results/reliability.json, in
which tests with --long, tests/mutate.py --record, tests/explore/record.py and tests/fuzz/record.py
keep what they counted:

python tests/reliability_page.py
"""

import json
import re

from support.reliability import FILE, RESULTS

PAGE = RESULTS.parent / "reliability.md"


def table(head, rows):
    lines = ["| " + " | ".join(map(str, line)) + " |" for line in [head, *rows]]
    return [lines[0], "|" + "---|" * len(head), *lines[1:]]


def of(found, kind):
    """The rows whose names begin with a kind, without it."""
    return {
        name[len(kind) + 1 :]: row for name, row in found.items() if name.startswith(kind + " ")
    }


def counted(row):
    """When, and of which commit; older rows do not have it."""
    return f"{row['date']} {row.get('commit', '')}".rstrip()


def machines(found):
    named = {f"{row['cpus']} CPUs, {row['cpu']}" for row in found.values() if "cpu" in row}
    return [f"Counted on: {'; '.join(sorted(named))}."]


def kills(found):
    """A row for each kind of process: the counts of its tests together."""
    groups = {}
    for name, row in found.items():
        if "kills" in row:
            language, process = name.replace("retrying", "host").split()[:2]
            groups.setdefault(f"{process} in {language}", []).append(row)
    rows, keys = [], ("kills", "asked", "open")
    for name, group in sorted(groups.items()):
        counts = [f"{sum(row.get(key, 0) for row in group):,}" for key in keys]
        noticed = [row["noticed_ms"] for row in group if row.get("noticed_ms")]
        most = [f"{max(each[key] for each in noticed):g}" for key in ("median", "most") if noticed]
        rows.append([name, *counts, "; ".join(most) or "-"])
    total = sum(row["kills"] for group in groups.values() for row in group)
    head = ["killed", "kills", "questions", "open", "ms until noticed: highest median; most"]
    said = f"In {total:,} kills and stops, no question was lost or answered twice."
    return [said, "", *table(head, rows)]


def explored(found):
    rows = [
        [name, row["what"], row["preemptions"], f"{row['situations']:,}"]
        for name, row in of(found, "explored").items()
    ]
    return table(["scenario", "what happens", "preemptions", "situations"], rows)


def mutated(found):
    rows = of(found, "mutants").values()
    noticed = sum(row["killed"] for row in rows)
    tried = noticed + sum(row["survived"] for row in rows)
    return [f"In all, {noticed} of {tried} changes were noticed."]


def fuzzed(found):
    rows = of(found, "fuzzed").values()
    inputs = [row["inputs"] for row in rows]
    reached, branches = (sum(row[key] for row in rows) for key in ("reached", "branches"))
    return [
        f"Each of {len(rows)} files with parsers got {min(inputs):,} to {max(inputs):,} inputs,"
        f" which reached {reached:,} of {branches:,} branches."
    ]


def soaked(found):
    row = found["soak"]
    first, last = row["samples"][0], row["samples"][-1]
    return [
        f"In {row['minutes']:g} minutes, {row['runners']} runners asked {last['questions']:,}"
        f" questions ({counted(row)}). The host's memory of {first['rss_kb']:,} KB grew by"
        f" {last['rss_kb'] - first['rss_kb']:,} KB, and its {first['descriptors']} descriptors by"
        f" {last['descriptors'] - first['descriptors']}. {row.get('note', '')}".rstrip()
    ]


def filled(text):
    """The page with the lines between its comments replaced."""
    found = json.loads(FILE.read_text())
    for part in (machines, kills, explored, fuzzed, mutated, soaked):
        name, body = part.__name__, "\n".join(["", *part(found), ""])
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)"
        text = re.sub(pattern, lambda m: f"{m[1]}{body}{m[2]}", text, flags=re.S)  # noqa: B023
    return text


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
