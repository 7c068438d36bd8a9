"""Writes the tables and pictures of docs/results.md, docs/performance.md and bench/README.md from the
output of results.py:

python bench/results_page.py

The pictures need matplotlib. For a figure that was not measured, the page names the command.
"""

from __future__ import annotations

import json
import statistics
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from peers_page import asked, peers, scale, short, workers
from results import RESULTS

PAGES = [RESULTS.parent / f"{name}.md" for name in ("results", "performance")]
PAGES += [Path(__file__).with_name("README.md")]
Found = dict[str, Any]
GREY, BLUE, ORANGE = "#8a8a8a", "#0057b7", "#c75000"
GREY_TEXT, BRIGHT_BLUE = "#767676", "#3b8eea"  # legible on white and on black
COLOURS = {"shm": BLUE, "pipe": GREY, "grpc": ORANGE}


def span(values: Sequence[float]) -> str:
    """The median, then the minimum and maximum; one value if they are equal."""
    least, middle, most = (each(values) for each in (min, statistics.median, max))
    if least == most:
        return number(middle)
    return f"{number(middle)} ({number(least)}{' to ' if least < 0 else '–'}{number(most)})"


def number(value: float) -> str:
    return f"-{short(-value)}" if value < 0 else "0" if value == 0 else short(value)


SYSTEM = [
    "date",
    "commit",
    "cpu",
    "cpus",
    "virtual",
    "kernel",
    "python",
    "compiler",
    "clang",
    "load",
]


def conditions(found: Found) -> str:
    """When, where and with what it was measured."""
    its = found["machine"]
    clang = its.get("clang", "").partition(" version ")[2].partition(" ")[0]
    words = [f"{its['cpus']} {'virtual ' * its['virtual']}CPUs ({its['cpu']})"]
    words += [f"Linux {its['kernel'].split('-')[0]}", f"Python {its['python']}"]
    words += [f"clang {clang}"] * bool(clang) + [f"gcc {its['compiler'].split()[-1]}"]
    words += [
        f"{name} {version}"
        for name, version in its.items()
        if name not in SYSTEM and version != "none"
    ]
    when = f"{its['date']}, commit {its['commit']}"
    return f"{when}: {', '.join(words)}; load {its['load']:.1f}."


def dated(table: Callable[[Found], list[str]]) -> Callable[[Found], list[str]]:
    """That table after a line with its conditions."""
    return lambda found: [*caption(conditions(found)), *table(found)]


def caption(text: str) -> list[str]:
    """A paragraph, wrapped, and an empty line."""
    return [*textwrap.wrap(text, 100, break_on_hyphens=False), ""]


def alike(distinct: int, kind: str) -> str:
    """How many outputs differ."""
    if distinct == 1:
        return f"All {kind} produced the same output."
    return f"The {kind} produced {distinct} different outputs."


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    lines = ["| " + " | ".join(map(str, line)) + " |" for line in [head, *rows]]
    return [lines[0], "|" + "---|" * len(head), *lines[1:]]


def per(many: Sequence[float], few: Sequence[float]) -> list[float]:
    """Ratios within rounds."""
    return [a / b for a, b in zip(many, few, strict=True)]


# ---- Tables: from measurements to lines ----


def deployed(found: Found) -> list[str]:
    """One policy at several URLs."""
    seconds = {way["way"]: way["seconds"] for way in found["ways"]}
    size = {way["way"]: way["bytes"] for way in found["ways"]}
    ways = {way["way"]: way for way in found["ways"]}
    timed = any(way["question_us"] for way in ways.values())
    rows = []
    for way, its in seconds.items():
        asked = ["-"] * (4 if timed else 1)
        if way != "plain":
            asked[0] = span(ways[way]["us_per_question_over_aot"])
        if ways[way]["question_us"]:
            rounds = ways[way]["question_us"]
            asked[1:] = [span([each[name] for each in rounds]) for name in ("mean", "p50", "p99")]
        cpu = [
            f"{statistics.median(ways[way][of]):.2f} s"
            for of in ("cpu_seconds", "host_cpu_seconds")
        ]
        ratio = span(per(its, seconds["plain"]))
        rows.append([f"`{way}`", f"{span(its)} s", ratio, *cpu, *asked])
    same = sum(pair["identical"] for pair in found["pairs"])
    decided = (
        "made identical decisions"
        if same == len(found["pairs"])
        else f"made identical decisions in {same} of {len(found['pairs'])} pairs"
    )
    head = ["", "time", "time / plain", "compiler's CPU", "host's CPU", "µs a question over `aot`"]
    if timed:
        head += ["mean µs", "median", "p99"]
    return [
        *caption(
            f"{found['decisions']} decisions, {found['rounds']} rounds. The {len(seconds) - 1} URLs "
            f"{decided}. {alike(found['different_objects'], 'URLs')} Bytes of output: {size['shm']}; "
            f"`plain`: {size['plain']}. {conditions(found)}"
        ),
        *table(head, rows),
    ]


def threads(found: Found) -> list[str]:
    rows = []
    for kind, its in (("`onnx`", found["onnx"].get("run")), ("`aot`", found["aot"])):
        for each in (its or {}).get("threads", []):
            for way, name in (("bound", "bound features"), ("direct", "called directly")):
                cells = [short(each["throughput"][str(n)][way]) for n in (1, 2, 4, 8)]
                rows.append([f"{kind}, {each['model']}, {name}", *cells])
    head = ["throughput / one thread", "1 thread", *(f"{n} threads" for n in (2, 4, 8))]
    return [*caption(conditions(found)), *table(head, rows)]


def training(found: Found) -> list[str]:
    rows = []
    for each in found["rows"]:
        one = next(way["seconds"] for way in each["ways"] if way["way"] == "shm")
        for way in each["ways"]:
            ratio = span(per(way["seconds"], one)) if way["way"] != "shm" else "1"
            what = [each["compiler"], each["workers"], f"`{way['way']}`"]
            cpu = short(way["trainer_cpu_us"])
            rows.append([*what, f"{span(way['seconds'])} s", ratio, cpu])
    same = all(each["same"] for each in found["rows"])
    learnt = "; ".join(
        f"{each['compiler']} with {each['workers']}: {each['episodes']} episodes, {each['actions']} "
        f"actions, reward {each['first']:.2f} to {each['last']:.2f}"
        for each in found["rows"]
    )
    equal = (
        "The three ways learnt bit-identical weights."
        if same
        else "The ways learnt DIFFERENT weights."
    )
    head = ["compiler", "workers", "way", "training", "time / shm", "trainer's CPU, µs an action"]  # fmt: skip
    return [
        *caption(f"{found['rounds']} rounds. {learnt}. {equal} {conditions(found)}"),
        *table(head, rows),
    ]


def sweep(found: Found) -> list[str]:
    rows = []
    for way in found["ways"]:
        low, high = way["ratio_range"]
        ratio = f"{short(way['ratio_to_shm'])} ({short(low)}–{short(high)})"
        paper = way["paper_ms"] and f"{way['paper_ms']:g} ms; {short(way['paper_ratio_to_onnx'])}"
        beside = way["ratios"]["onnx"]
        rows.append([way["way"], short(way["sum_us"] / 1e3), ratio, short(beside) if beside else "-", paper or "-"])  # fmt: skip
    lengths = found["lengths"]
    ms = f"ms, {len(lengths)} lengths of {lengths[0]} to {lengths[-1]} floats"
    return [
        *caption(f"{questions(found)} {conditions(found)}"),
        *table(["", ms, "/ shm", "/ onnx", "the paper's sum; / its ONNX"], rows),
    ]


def questions(found: Found) -> str:
    """The shortest and the longest question through shm and gRPC."""
    ns = {way["way"]: way["ns"] for way in found["ways"]}
    if not {"shm", "grpc in C's process"} <= ns.keys():
        return ""
    shm, grpc = ns["shm"], ns["grpc in C's process"]
    texts = [
        f"{short(shm[i] / 1e3)} µs with {found['lengths'][i]} floats, and {short(grpc[i] / shm[i])} "
        "times as long through gRPC from C"
        for i in (0, -1)
    ]
    return f"A question over `shm` takes {'; '.join(texts)}."


def session(found: Found) -> list[str]:
    plain = found["ways"][0]["ms"]
    names = {"gym": "gRPC, CompilerGym's way", "plain": "no questions"}
    gym = next(way["ms"] for way in found["ways"] if way["way"] == "gym")
    each = found["actions"] / found["sessions"]
    rows = []
    for way in found["ways"]:
        over = [(a - b) / each * 1e3 for a, b in zip(way["ms"], plain, strict=True)]
        name = names.get(way["way"], f"`{way['way']}`")
        rows.append([name, f"{span(way['ms'])} ms", span(per(way["ms"], plain)), span(per(gym, way["ms"])), span(over)])  # fmt: skip
    head = ["", "a session", "time / no questions", "gRPC / time", "µs an action over no questions"]
    return [
        *caption(
            f"{found['sessions']} sessions of {each:.0f} actions, {found['rounds']} rounds. "
            f"{alike(found['outputs'], 'ways')} {conditions(found)}"
        ),
        *table(head, rows),
    ]


WAYS = {
    "onnx": "`onnx://`, ONNX Runtime in the compiler",
    "shm": "`shm://`, a host in C",
    "before": "- before",
    "shm_8": "- 8 in flight",
    "shm_py": "`shm://`, a Python function",
    "before_py": "- before",
    "shm_py_8": "- 8 in flight",
    "shm_onnx": "`shm://`, an ONNX model",
    "before_onnx": "- before",
    "llvm": "LLVM's pipes, a reader in C for each compiler",
    "llvm_py": "LLVM's pipes, a reader in Python for each",
    "mlcb": "ML-Compiler-Bridge's pipes, Python for each",
    "grpc": "gRPC, C++ on both sides",
    "grpc_py": "gRPC, C++ to Python",
}


def compilation(found: Found) -> list[str]:
    """A question between the steps of a compilation."""

    def middle(figures: Found, name: str) -> str:
        low, median, high = map(number, figures[name])
        return f"{median} ({low}{' to ' if low[0] == '-' else '–'}{high})"

    situations = [each for each in found["situations"] if not each["loops"]]
    head, rows = ["µs a question over `aot://`"], [[name] for name in WAYS.values()]
    for each in situations:
        figures, more = each["figures"], ["p99", "host's CPU"] if each["jobs"] == 1 else []
        head += [f"{each['jobs']} compiler{'s' * (each['jobs'] > 1)}", *more, "time / `aot`"]
        for way, row in zip(WAYS, rows, strict=True):
            if its := figures.get(way):
                details = [number(its[name][1]) for name in ("p99", "host") if more]
                row += [middle(its, "over aot"), *details, f"{its['wall / aot'][1]:.2f}"]
            else:
                row += ["-"] * (2 + len(more))
    counts = ", ".join(str(each["alternations"]) for each in situations)
    before = f" Before: commit {found['before']}." if found.get("before") else ""
    text = f"Medians of {counts} alternations; brackets: quartiles.{before} {conditions(found)}"
    return [*caption(text), *table(head, [row for row in rows if set(row[1:]) != {"-"}])]


# ---- Pictures ----


def draw_training(found: Found, path: Path) -> None:
    """A panel for each compiler: dots are rounds, groups are workers."""
    from matplotlib import pyplot

    names = list(dict.fromkeys(each["compiler"] for each in found["rows"]))
    figure, panels = pyplot.subplots(
        1, len(names), figsize=(9, 3.6), layout="constrained", squeeze=False
    )
    for panel, name in zip(panels[0], names, strict=True):
        rows = [each for each in found["rows"] if each["compiler"] == name]
        for i, each in enumerate(rows):
            for j, way in enumerate(each["ways"]):
                x, colour = i + (j - 1) * 0.25, COLOURS[way["way"]]
                middle = statistics.median(way["seconds"])
                panel.bar(x, middle, 0.22, color=colour, label=way["way"] if not i else None)
                panel.plot([x] * len(way["seconds"]), way["seconds"], "k.", markersize=4)
                high = max(way["seconds"])
                panel.annotate(short(middle), (x, high), (0, 4), textcoords="offset points", ha="center", fontsize=9)  # fmt: skip
        panel.set_xticks(range(len(rows)), [f"{each['workers']} worker(s)" for each in rows])
        panel.set(title=name, ylabel="seconds")
        panel.margins(y=0.12)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0][0].legend(frameon=False)
    figure.savefig(path)
    pyplot.close(figure)


def draw_sweep(found: Found, path: Path) -> None:
    """Round trip over length, both logarithmic; each line has its own dashes and marks, and its
    name at the end."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 6), layout="constrained")
    styles = ["-", (0, (6, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2))]
    ends: list[tuple[float, str, Any]] = []
    for i, way in enumerate(found["ways"]):
        us = [value / 1e3 for value in way["ns"]]
        (line,) = axes.plot(
            found["lengths"],
            us,
            linestyle=styles[i % len(styles)],
            marker="osD^vX*P"[i % 8],
            markevery=max(1, len(us) // 8),
            markersize=5,
        )
        ends.append((us[-1], way["way"], line.get_color()))
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="floats in the question",
        ylabel="a round trip, microseconds",
    )
    axes.set_xlim(found["lengths"][0], found["lengths"][-1])
    axes.grid(True, which="major", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    low, high = axes.get_ylim()
    place = 0.0
    for us, name, colour in sorted(ends):  # moves overlapping names up
        place = max(us, place * (high / low) ** 0.035)
        axes.annotate(
            name,
            (found["lengths"][-1], us),
            (found["lengths"][-1] * 1.08, place),
            color=colour,
            va="center",
            annotation_clip=False,
        )
    figure.savefig(path)
    pyplot.close(figure)


def bar(panel: Any, y: int, value: float, colour: str, text: str, end: float) -> None:
    """A horizontal bar, with a text behind `end`."""
    panel.barh(y, value, 0.6, color=colour)
    panel.annotate(text, (end, y), (6, 0), textcoords="offset points", va="center", fontsize=9)


def draw_session(found: Found, path: Path) -> None:
    """Dots are rounds."""
    from matplotlib import pyplot

    figure, panel = pyplot.subplots(figsize=(7, 2.6), layout="constrained")
    names = {"gym": "gRPC, CompilerGym's way", "plain": "no questions"}
    for y, way in enumerate(reversed(found["ways"])):
        middle = statistics.median(way["ms"])
        colour = {"gym": ORANGE, "plain": GREY}.get(way["way"], BLUE)
        bar(panel, y, middle, colour, short(middle), max(way["ms"]))
        panel.plot(way["ms"], [y] * len(way["ms"]), "k.", markersize=4)
    labels = [names.get(way["way"], way["way"]) for way in reversed(found["ways"])]
    panel.set_yticks(range(len(labels)), labels)
    panel.set_xlabel("ms a session")
    panel.margins(x=0.08)
    panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)
    pyplot.close(figure)


def tuned(found: Found) -> list[str]:
    """Programs that shmbridge tune made smaller."""
    rows, gains = [], []
    for name, its in found["programs"].items():
        before = its["search"]["before"]
        gain, chance = (its[way]["after"] / before - 1 for way in ("search", "random"))
        gains.append(gain)
        minutes = (its["search"]["cpu"] / 60, its["random"]["cpu"] / 60)
        rows.append(
            [
                name,
                its["sources"],
                its["decisions"],
                f"{before:.0f}",
                f"{gain:+.2%}",
                f"{chance:+.2%}",
            ]
            + [its["search"]["compilations"], *(f"{each:.1f}" for each in minutes)]
            + ["yes" if its[what] else "**no**" for what in ("tested", "identical")]
        )
    mean = statistics.mean(gains) if gains else 0.0
    verdict = "met" if mean <= found["target"] else "not met"
    head = ["program", "sources", "decisions", "bytes of `.text`", "`tune`", "random"]
    head += ["compilations", "CPU min", "of random", "tests pass", "same bytes twice"]
    missing = f" Not finished: {', '.join(found['unfinished'])}." if found["unfinished"] else ""
    return [
        *caption(f"Mean: {mean:+.2%}; target {found['target']:+.0%}: {verdict}.{missing}"),
        *table(head, rows),
    ]


def learned(found: Found) -> list[str]:
    """The inliner of examples/inline_for_size, on objects and programs that it has not seen."""
    names = {"objects": "objects", "linked": "linked programs", "ThinLTO": "with ThinLTO"}
    rows = []
    for how, changes in found["changes"].items():
        for way, values in changes.items():
            low, high = found["intervals"][how][way]
            mean = f"{statistics.mean(values):+.2%} ({low:+.2%} to {high:+.2%})"
            rows.append([names[how], way, mean, ", ".join(f"{each:+.2%}" for each in values)])
    for how, ways in found["programs"].items():
        for program in ways["learned"][0]:
            pairs = [sizes[program] for sizes in ways["learned"]]
            each = [policy / plain - 1 for plain, policy in pairs]
            changes = ", ".join(f"{one:+.2%}" for one in each)
            name = f"{program}, {names[how]}"
            rows.append([name, "learned", f"{statistics.mean(each):+.2%}", changes])
    minutes = statistics.mean(found["minutes"])
    text = f"{found['test']} objects. To learn: {found['compilations']} compilations for each seed"
    text += f" ({found['train']} files), {minutes:.1f} minutes of CPU."
    head = ["what", "policy", "`.text` compared with -Oz (95 % interval)", "by seed"]
    return [*caption(text), *table(head, rows)]


def draw_inline(found: Found, path: Path) -> None:
    """What each URL adds to a compilation, for light and dark pages."""
    from matplotlib import pyplot

    names = {
        "aot": "in the compiler, machine code",
        "shm_py": "shm://, a Python function",
        "shm": "shm://, an ONNX model",
        "onnx": "in the compiler, ONNX Runtime",
        "pipe": "named pipes",
        "python": "in the compiler, Python",
        "grpc": "gRPC",
    }
    seconds = {way["way"]: way["seconds"] for way in found["ways"]}
    with pyplot.rc_context(dict.fromkeys(("text.color", "ytick.color"), GREY_TEXT)):
        figure, panel = pyplot.subplots(figsize=(8, 2.6), layout="constrained")
        for y, way in enumerate(reversed(names)):
            added = [100 * (ratio - 1) for ratio in per(seconds[way], seconds["plain"])]
            middle = statistics.median(added)
            colour = BRIGHT_BLUE if way.startswith("shm") else GREY_TEXT
            bar(panel, y, middle, colour, f"+{middle:.0f} %", middle)
        panel.set_yticks(range(len(names)), reversed(names.values()))
        panel.set_xticks([])
        panel.tick_params(length=0)
        panel.margins(x=0.08)
        panel.spines[:].set_visible(False)
        figure.savefig(path, transparent=True)
        pyplot.close(figure)


TABLES: dict[str, Callable[[Found], list[str]]] = {
    "inline": deployed,
    "phases": deployed,
    "threads": threads,
    "training": training,
    "sweep": sweep,
    "session": session,
    "tuned": dated(tuned),
    "learned": dated(learned),
    "compilation": compilation,
    "workers": dated(workers),
    "scale": dated(scale),
    "peers": dated(peers),
    "asked": dated(asked),
}
PICTURES: dict[str, tuple[Callable[[Found, Path], None], str]] = {
    "inline": (draw_inline, "Time that the questions add to a build of zstd, by URL"),
    "training": (draw_training, "Time of a training, by compiler, workers and way"),
    "sweep": (draw_sweep, "Round trips by length and way"),
    "session": (draw_session, "Time of a session, by way"),
}


def draw(found: dict[str, Found]) -> None:
    try:
        import matplotlib
    except ImportError:
        print("no new pictures: pip install matplotlib", file=sys.stderr)
        return
    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "results"}
    for name, (picture, _) in PICTURES.items():
        if name in found:
            picture(found[name], RESULTS / f"{name}.svg")


def section(name: str, found: dict[str, Found]) -> list[str]:
    """The lines between a figure's comments."""
    file = "peers" if name == "asked" else name
    if file not in found:
        return [f"Not measured yet: `python bench/results.py --only {file}`.", ""]
    lines = [*TABLES[name](found[file]), ""]
    if name in PICTURES and (RESULTS / f"{name}.svg").exists():
        lines = [f"![{PICTURES[name][1]}](results/{name}.svg)", "", *lines]
    return lines


def filled(page: Path, found: dict[str, Found]) -> str:
    """The page with the lines between its comments replaced."""
    text = page.read_text()
    for name in TABLES:
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
        if begin in text:
            before, rest = text.split(begin)
            lines = "\n".join(section(name, found))
            text = f"{before}{begin}\n{lines}{end}{rest.split(end)[1]}"
    return text


def measured() -> dict[str, Found]:
    """The figures of results.py; other files are counts, for docs/reliability.md."""
    found = {file.stem: json.loads(file.read_text()) for file in RESULTS.glob("*.json")}
    return {name: figure for name, figure in found.items() if "machine" in figure}


def main() -> int:
    found = measured()
    draw(found)
    for page in PAGES:
        page.write_text(filled(page, found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
