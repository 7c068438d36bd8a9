"""Writes the tables and the picture of docs/reliability.md from docs/results/reliability.json, in
which tests with --long, tests/mutate.py --record, tests/explore/record.py and tests/fuzz/record.py
keep what they counted:

python tests/reliability_page.py

The picture needs matplotlib.
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
        outcomes = [f"{row.get(key, 0):,}" for key in ("answered", "default", "error", "open")]
        counts = [f"{row['kills']:,}", f"{row['asked']:,}", *outcomes]
        rows.append([name, *counts, times, counted(row)])
    total = sum(row["kills"] for row in found.values() if "kills" in row)
    head = ["killed", "kills", "questions", "answered", "default", "error", "open"]
    return [
        f"{total:,} kills and stops. No question was lost or answered twice.",
        "",
        *table([*head, "ms until noticed: median; p99; most", "counted"], rows),
    ]


def explored(found):
    rows = []
    for name, row in of(found, "explored").items():
        figures = [row["preemptions"], f"{row['situations']:,}", f"{row['cpu_seconds']:.1f} s"]
        rows.append([name, row["what"], *figures, counted(row)])
    head = ["scenario", "what happens", "preemptions", "situations", "CPU time", "counted"]
    return table(head, rows)


def mutated(found):
    rows, killed, tried = [], 0, 0
    for name, row in of(found, "mutants").items():
        failed = row["killed"] + row["timeout"]
        killed, tried = killed + failed, tried + failed + row["survived"]
        rows.append([f"`{name}`", failed, row["survived"], counted(row)])
    said = f"{killed} of {tried} were noticed." if tried else "Not recorded yet."
    return [said, "", *table(["file", "noticed", "survived", "counted"], rows)]


def fuzzed(found):
    rows = []
    for name, row in of(found, "fuzzed").items():
        share = f"{row['reached']} of {row['branches']}"
        rows.append([f"`{name}`", share, f"{row['inputs']:,}", f"{row['minutes']:g}", counted(row)])
    return table(["parser", "branches reached", "inputs", "minutes", "counted"], rows)


def soaked(found):
    if "soak" not in found:
        return ["Not recorded yet."]
    row = found["soak"]
    draw(row, RESULTS / "soak.svg")
    first, last = row["samples"][0], row["samples"][-1]
    return [
        "![Memory, descriptors and latency in the soak](results/soak.svg)",
        "",
        f"{row['minutes']:g} minutes, {row['runners']} runners, {last['questions']:,} questions,"
        f" {counted(row)}. The host's memory was {first['rss_kb']:,} KB at first and"
        f" {last['rss_kb']:,} KB at last, its descriptors {first['descriptors']} and"
        f" {last['descriptors']}. A question took {latency(first)} in the first minute, and"
        f" {latency(last)} in the last. {row.get('note', '')}".rstrip(),
    ]


def latency(sample):
    return f"{sample['p50_us'] / 1000:.3g} ms (p99 {sample['p99_us'] / 1000:.3g})"


def draw(row, path):
    """Over time, for light and dark pages."""
    try:
        import matplotlib
        from matplotlib import pyplot
    except ImportError:
        return
    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "soak", "font.size": 8}
    grey = dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), "#767676"
    )
    minutes = [sample["seconds"] / 60 for sample in row["samples"]]
    with pyplot.rc_context(grey):
        figure, panels = pyplot.subplots(3, 1, figsize=(8, 5), sharex=True, layout="constrained")
        for panel, keys, label in [
            (panels[0], ["rss_kb"], "memory, KB"),
            (panels[1], ["descriptors"], "descriptors"),
            (panels[2], ["p50_us", "p99_us", "p99.9_us"], "a question, µs"),
        ]:
            for key, style in zip(keys, ["-", "--", ":"], strict=False):
                values = [sample[key] for sample in row["samples"]]
                panel.plot(minutes, values, style, color="#3b8eea", label=key.removesuffix("_us"))
            panel.set_ylabel(label)
            panel.spines[["top", "right"]].set_visible(False)
        for panel in panels[:2]:
            panel.set_ylim(bottom=0)
        panels[2].set_yscale("log")
        panels[2].legend(frameon=False, ncols=3)
        panels[2].set_xlabel("minutes")
        figure.savefig(path, transparent=True, metadata={"Date": None})
        pyplot.close(figure)


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
