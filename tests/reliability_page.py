"""Writes the tables of docs/reliability.md from docs/results/reliability.json, in
which tests with --long, tests/mutate.py --record, tests/explore/record.py and tests/fuzz/record.py
keep what they counted:

python tests/reliability_page.py
"""

import json
import re
from pathlib import Path

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
    rows = []
    for name, row in found.items():
        if "kills" not in row:
            continue
        noticed = row.get("noticed_ms")
        times = f"{noticed['median']}; {noticed['p99']}; {noticed['most']}" if noticed else "-"
        counts = [f"{row.get(key, 0):,}" for key in ("kills", "asked", "open")]
        rows.append([name, *counts, times])
    total = sum(row["kills"] for row in found.values() if "kills" in row)
    head = ["killed", "kills", "questions", "open", "ms until noticed: median; p99; most"]
    return [
        f"In {total:,} kills and stops, no question was lost or answered twice.",
        "",
        *table(head, rows),
    ]


def explored(found):
    rows = []
    for name, row in of(found, "explored").items():
        rows.append([name, row["what"], row["preemptions"], f"{row['situations']:,}"])
    return table(["scenario", "what happens", "preemptions", "situations"], rows)


def mutated(found):
    rows = of(found, "mutants").values()
    noticed = sum(row["killed"] for row in rows)
    tried = noticed + sum(row["survived"] for row in rows)
    return [f"In all, {noticed} of {tried} changes were noticed; the file above counts them by folder."]


def fuzzed(found):
    rows = []
    for name, row in of(found, "fuzzed").items():
        share = f"{row['reached']} of {row['branches']}"
        rows.append([f"`{name}`", share, f"{row['inputs']:,}"])
    return table(["parser", "branches reached", "inputs"], rows)


def soaked(found):
    if "soak" not in found:
        return ["Not recorded yet."]
    row = found["soak"]
    first, last = row["samples"][0], row["samples"][-1]
    return [
        f"The run of {counted(row)} took {row['minutes']:g} minutes, in which {row['runners']} runners"
        f" asked {last['questions']:,} questions. The host's memory was {first['rss_kb']:,} KB at first and"
        f" {last['rss_kb']:,} KB at last, its descriptors {first['descriptors']} and"
        f" {last['descriptors']}. {row.get('note', '')}".rstrip(),
    ]


def main(page: Path = PAGE):
    found = json.loads(FILE.read_text()) if FILE.exists() else {}
    parts = {"machines": machines(found), "kills": kills(found), "explored": explored(found)}
    parts |= {"fuzzed": fuzzed(found), "mutated": mutated(found), "soaked": soaked(found)}
    text = page.read_text()
    for name, lines in parts.items():
        body = "\n".join(["", *lines, ""])
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)"
        text = re.sub(pattern, lambda m: f"{m[1]}{body}{m[2]}", text, flags=re.S)  # noqa: B023
    page.write_text(text)


if __name__ == "__main__":
    main()
