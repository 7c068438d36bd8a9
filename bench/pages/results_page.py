"""Writes the tables and pictures of docs/results.md, docs/performance.md and examples/regalloc from
the output of results.py:

python bench results_page

The pictures need matplotlib. For a figure that was not measured, the page names the command.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

from peers_page import peers, scale, workers
from results import RESULTS
from tables import Found, caption, change, conditions, dated, per, short, span, table

PAGES = [RESULTS.parent / f"{name}.md" for name in ("results", "performance")]
PAGES.append(RESULTS.parents[1] / "examples/regalloc/README.md")
GREY, BLUE = "#59636e", "#0969da"  # as those of docs/pictures.py, on light pages and on dark ones
DARK = f"""@media (prefers-color-scheme: dark) {{
[style*="{GREY}"] {{ fill: #9198a1 !important }} [style*="{BLUE}"] {{ fill: #58a6ff !important }} }}"""


# ---- Tables: from measurements to lines ----


def inline(found: Found) -> list[str]:
    """One policy at several URLs."""
    plain = found["ways"][0]
    rows = []
    for way in found["ways"]:
        row = [f"`{way['way']}`", span(per(way["seconds"], plain["seconds"]))]
        row.append(f"{statistics.median(way['host_cpu_seconds']):.2f} s")
        if rounds := way["question_us"]:
            p99 = span([each["p99"] for each in rounds])
            row += [span(way["us_per_question_over_aot"]), p99]
        rows.append(row + ["-"] * (5 - len(row)))
    pairs = found["pairs"]
    same, objects = sum(pair["identical"] for pair in pairs), found["different_objects"]
    text = (
        f"In {same} of {len(pairs)} pairs of URLs the {found['decisions']} decisions were equal, and"
        f" in {found['rounds']} rounds all URLs made {'the same object' if objects == 1 else f'{objects} objects'}"
        f" of {found['ways'][1]['bytes']} bytes, where `plain` has {plain['bytes']}."
    )
    head = ["", "time / plain", "host's CPU", "µs a question over `aot`", "p99, µs"]
    return [*caption(f"{text} {conditions(found)}"), *table(head, rows)]


def urls(found: Found) -> list[str]:
    """The same compilations by URL: a column for each program, or number of jobs."""
    columns, rows, figure = found["columns"], [], found["figure"]
    first = next(iter(columns.values()))
    for place, way in enumerate(first["ways"][1:], 1):
        cells = [
            span(per(its["ways"][place][figure], its["ways"][0][figure]))
            for its in columns.values()
        ]
        if len(columns) == 1:
            cells.append(span(per(way["cpu_seconds"], first["ways"][0]["cpu_seconds"])))
            pairs = zip(way["seconds"], first["ways"][-1]["seconds"], strict=True)
            cells.append(span([1e6 * (mine - aot) / first["questions"] for mine, aot in pairs]))
        rows.append([f"`{way['way']}`", *cells])
    if len(columns) > 1 and figure == "seconds":
        plain = (statistics.median(its["ways"][0]["seconds"]) for its in columns.values())
        rows.insert(0, ["`plain`", *(f"{seconds:.2f} s" for seconds in plain)])
    unit = "CPU" if figure == "cpu_seconds" else "time"
    head = [f"{unit} / plain", *columns]
    if len(columns) == 1:
        head += ["compiler's CPU / plain", "µs a question over `aot`"]
    counts = ", ".join(dict.fromkeys(str(its["questions"]) for its in columns.values()))
    others = ", ".join(name for name, its in columns.items() if its["different_objects"] > 1)
    made = f"the same object, except for {others}" if others else "the same object"
    rounds = "one round" if found["rounds"] == 1 else f"each of {found['rounds']} rounds"
    text = f"In {rounds} every URL asked {counts} questions, and all made {made}."
    return [*caption(f"{text} {conditions(found)}"), *table(head, rows)]


def integration(found: Found) -> list[str]:
    """Lines and size of the plug-ins; lines by hand; what a compiler loads."""

    def kilobytes(size: float) -> str:
        return f"{size / 1000:.0f} kB" if size < 1e6 else f"{size / 1e6:.0f} MB"

    rows = [
        [f"`{each['name']}`", each["lines"], each["using"], kilobytes(each["bytes"])]
        for each in found["rows"]
    ]
    head = ["plug-in", "lines of code", "that use the library", "built"]
    hand = [[each["name"], each["compiler"], each["model"]] for each in found["by hand"]]
    plain, *others = found["compilers"]
    loads = [["`plain`", "-", plain["threads"], f"{plain['memory'] / 1e6:.0f} MB"]]
    for each in others:
        more = f"{(each['memory'] - plain['memory']) / 1e6:+.1f} MB"
        loads.append([f"`{each['way']}`", kilobytes(each["bytes"]), each["threads"], more])
    return [
        *caption(f"The library alone has {kilobytes(found['library'])}. {conditions(found)}"),
        *table(head, rows),
        "",
        *table(["lines to ask one policy", "in the compiler", "at the model"], hand),
        "",
        *table(["clang with the inliner", "loads", "threads", "memory"], loads),
    ]


def training(found: Found) -> list[str]:
    rows = []
    for each in found["rows"]:
        one = next(way["seconds"] for way in each["ways"] if way["way"] == "shm")
        for way in each["ways"]:
            ratio = span(per(way["seconds"], one)) if way["way"] != "shm" else f"{span(one)} s"
            rows.append([each["workers"], f"`{way['way']}`", ratio])
    same = all(each["same"] for each in found["rows"])
    equal = "the same weights" if same else "DIFFERENT weights"
    episodes = found["rows"][0]["episodes"]
    text = f"In {found['rounds']} rounds of {episodes} episodes, all URLs ended with {equal}."
    head = ["workers", "transport", "time / shm"]
    return [*caption(f"{text} {conditions(found)}"), *table(head, rows)]


def sweep(found: Found) -> list[str]:
    rows = []
    for way in found["ways"]:
        low, high = map(short, way["ratio_range"])
        rows.append([way["way"], f"{short(way['ratio_to_shm'])} ({low}–{high})"])
    return table(["sum of the round trips", "/ shm"], rows)


WAYS = {
    "onnx": "`onnx://`, ONNX Runtime in the compiler",
    "shm": "`shm://`, a host in C",
    "shm_each": "- a host for each compiler",
    "shm_8": "- 8 in flight",
    "shm_py": "`shm://`, a Python function",
    "shm_py_8": "- 8 in flight",
    "shm_onnx": "`shm://`, an ONNX model",
    "llvm": "LLVM's pipes, a reader in C for each compiler",
    "llvm_py": "LLVM's pipes, a reader in Python for each",
    "mlcb": "ML-Compiler-Bridge's pipes, Python for each",
    "grpc": "gRPC, C++ on both sides",
    "grpc_py": "gRPC, C++ to Python",
}


def compilation(found: Found) -> list[str]:
    """A question between the steps of a compilation."""

    situations = [each for each in found["situations"] if not each["loops"]]
    head, rows = ["µs a question over `aot`; time / `aot`"], [[name] for name in WAYS.values()]
    for each in situations:
        figures = each["figures"]
        head.append(f"{each['jobs']} compiler{'s' * (each['jobs'] > 1)}")
        for way, row in zip(WAYS, rows, strict=True):
            its = figures.get(way)
            added = its and f"{short(its['over aot'][1])}; {its['wall / aot'][1]:.2f}"
            row.append(added or "-")
    counts = ", ".join({str(each["alternations"]): 1 for each in situations})
    text = f"The figures are medians of {counts} alternations. {conditions(found)}"
    return [*caption(text), *table(head, [row for row in rows if set(row[1:]) != {"-"}])]


def tuned(found: Found) -> list[str]:
    """Programs that shmbridge tune made smaller, with two budgets."""
    once, thrice = (found["programs"][times] for times in ("1", "3"))
    rows, means = [], dict[str, list[float]]()
    for name, its in once.items():
        search = its["search"]
        ways = [search, its.get("random"), thrice.get(name, {}).get("search")]
        gains = [way["after"] / search["before"] - 1 if way else None for way in ways]
        linked = its.get("linked") and its["linked"]["after"] / its["linked"]["before"] - 1
        means.setdefault("held out" if its["held_out"] else "programs", []).append(gains[0])
        if gains[2] is not None:
            means.setdefault("of them with three times as many compilations", []).append(gains[2])
        cut = "\\*" if its["budget"] < its["functions"] // 2 else ""
        rows.append(
            [name + cut, f"{search['before']:.0f}"]
            + ["-" if gain is None else change(gain) for gain in (gains[0], linked, gains[1])]
        )
    head = ["program", "bytes with `-Oz`", "`tune`", "linked", "random"]
    said = (
        f"{change(statistics.mean(values))} for {len(values)} {what}"
        for what, values in means.items()
    )
    right = all(its["search"]["tested"] and its["search"]["identical"] for its in once.values())
    tested = "Every tuned program passes its tests, and compiling it twice gives the same bytes."
    text = f"The means are {', '.join(said)}. {'**Untrue:** ' * (not right)}{tested}"
    return [*caption(f"{text}{_executed(once)} {conditions(found)}"), *table(head, rows)]


def _executed(programs: Found) -> str:
    """What tuning by executed instructions gained, in the median of five runs."""
    runs = []
    for name, its in programs.items():
        if found := its.get("run"):
            plain, tuned = (statistics.median(found[which]) for which in ("plain", "tuned"))
            runs.append(f"{name} went from {plain / 1e6:.3f} to {tuned / 1e6:.3f} million")
            runs[-1] += f" ({change(tuned / plain - 1)})"
    return f" Tuned by executed instructions, {', and '.join(runs)}." if runs else ""


def learned(found: Found) -> list[str]:
    """The inliner of examples/inline_for_size, on objects and programs that it has not seen."""
    names = {"objects": "objects", "linked": "linked programs", "ThinLTO": "with ThinLTO"}
    rows = []
    for how, changes in found["changes"].items():
        for way, values in changes.items():
            low, high = found["intervals"][how][way]
            mean = f"{change(statistics.mean(values))} ({change(low)} to {change(high)})"
            rows.append([names[how], way, mean, ", ".join(change(each) for each in values)])
    minutes = statistics.mean(found["minutes"])
    text = f"With each seed the policy learned from {found['train']} files, in"
    text += (
        f" {found['compilations']} compilations and {minutes:.1f} minutes of CPU, and was tested"
    )
    text += f" on {found['test']} objects."
    head = ["what", "policy", "`.text` compared with -Oz (95 % interval)", "by seed"]
    return [*caption(f"{text} {conditions(found)}"), *table(head, rows)]


def regalloc(found: Found) -> list[str]:
    """The allocator of examples/regalloc: kernels by policy, then programs."""
    kernels: dict[str, list[Found]] = {}
    for row in found["kernels"]["rows"]:
        kernels.setdefault(row["policy"].partition(",")[0], []).append(row)
    rows = []
    for name, seeds in kernels.items():
        sides = [sorted(seed[side] for seed in seeds) for side in ("train", "test")]
        ends = [f" ({change(e[0])} to {change(e[-1])})" if len(e) > 1 else "" for e in sides]
        middles = [change(statistics.median(side)) for side in sides]
        both = (middle + end for middle, end in zip(middles, ends, strict=True))
        rows.append([name.replace("learnt", "learned"), *both])
    lines = [*table(["", "six training kernels", "seven held out"], rows), ""]
    rows = []
    for program, its in found["programs"].items():
        for name in [each for each in its if each != "basic"]:
            asked, spills, splits = (its[name][n] or "-" for n in ("Questions", "Spills", "Splits"))
            ratios = (its[name][n] / its["basic"][n] for n in ("text", "instructions"))
            failed = "" if its[name]["passed"] else ", **fails its tests**"
            words = [f"{program}, {name}{failed}", asked, f"{spills}; {splits}"]
            rows.append([*words, *(change(each - 1) for each in ratios)])
    return lines + table(
        ["", "questions", "spills; splits", "`.text`", "instructions executed"], rows
    )


# ---- Pictures ----


def bars(values: dict[str, float], label: Callable[[float], str], path: Path) -> None:
    """A bar for each name, the first at the top, for light and dark pages, and narrow enough for a
    phone: a name is above its bar."""
    from matplotlib import pyplot

    with pyplot.rc_context({"text.color": GREY}):
        figure, panel = pyplot.subplots(
            figsize=(4.4, 0.1 + 0.5 * len(values)), layout="constrained"
        )
        for y, (name, value) in enumerate(values.items()):
            colour = BLUE if name.startswith("shm") else GREY
            panel.barh(-y, value, 0.35, color=colour)
            panel.annotate(label(value), (max(value, 0), -y), (6, -4), textcoords="offset points")
            panel.text(0, 0.27 - y, name)
        panel.margins(x=0.3, y=0.01)
        panel.set_xlim(left=min(0, *values.values()))
        panel.axis("off")
        figure.savefig(path, transparent=True, metadata={"Date": None})
        path.write_text(path.read_text().replace("</style>", f"{DARK}</style>"))
        pyplot.close(figure)


def times(us: dict[str, float], path: Path) -> None:
    """The shortest at the top."""
    shortest_first = dict(sorted(us.items(), key=lambda each: each[1]))
    bars(shortest_first, lambda value: f"{short(value)} µs", path)


def draw_inline(found: Found, path: Path) -> None:
    """What each URL adds to a compilation: the median, and the range of the rounds."""
    names = {
        "aot": "in the compiler, machine code",
        "shm_py": "shm://, a Python function",
        "shm": "shm://, an ONNX model",
        "onnx": "in the compiler, ONNX Runtime",
        "pipe": "named pipes",
        "python": "in the compiler, Python",
        "grpc_cpp": "gRPC from C++ in the compiler",
        "grpc": "gRPC from Python in the compiler",
        "relay": "gRPC by a relay, in Python",
    }
    seconds = {way["way"]: way["seconds"] for way in found["ways"]}
    added, labels = {}, {}
    for way, name in names.items():
        low, *_, high = each = sorted(100 * (r - 1) for r in per(seconds[way], seconds["plain"]))
        middle = added[name] = statistics.median(each)
        labels[middle] = f"{round(middle):+} % ({round(low)} to {round(high)})"
    bars(added, labels.__getitem__, path)


def draw_sweep(found: Found, path: Path) -> None:
    """The sum of the round trips of all lengths, as multiples of shared memory's."""
    ratios = {way["way"]: way["ratio_to_shm"] for way in found["ways"]}
    bars(dict(sorted(ratios.items(), key=lambda each: each[1])), short, path)


def draw_compilation(found: Found, path: Path) -> None:
    """What a question of one compiler costs over a model in the compiler."""
    alone = next(each for each in found["situations"] if (each["jobs"], each["loops"]) == (1, 0))
    us = {
        name.replace("`", ""): alone["figures"][way]["over aot"][1]
        for way, name in WAYS.items()
        if not name.startswith("-")
    }
    times(us, path)


def draw_peers(found: Found, path: Path) -> None:
    """The median time of a question back to back, by library."""
    us = {
        row["peer"]: statistics.median(each["p50_us"] for each in row["rounds"])
        for row in found["rows"]
        if (row["bytes"], row["loops"], row["clients"]) == (2_000, 0, 1)
    }
    times(us, path)


def draw_scale(found: Found, path: Path) -> None:
    """Answers a second of one Python host, by number of runners."""
    rates = {
        f"{row['runners']} compilers" if row["runners"] > 1 else "1 compiler": statistics.median(
            each["per_second"] for each in row["rounds"]
        )
        for row in found["rows"]
        if row["way"] == "host.serve(model)"
    }
    bars(rates, lambda value: f"{short(value / 1e6)} million", path)


def draw_training(found: Found, path: Path) -> None:
    """Time of a training with several compilers, as multiples of shared memory's."""
    row = max(found["rows"], key=lambda each: each["workers"])
    names = {"shm": "shm://", "pipe": "named pipes", "grpc": "gRPC", "original": "processes"}
    one = next(way["seconds"] for way in row["ways"] if way["way"] == "shm")
    ratios = {names[way["way"]]: statistics.median(per(way["seconds"], one)) for way in row["ways"]}
    bars(ratios, short, path)


TABLES: dict[str, Callable[[Found], list[str]]] = {
    "inline": inline,
    "phases": urls,
    "allocation": urls,
    "jobs": urls,
    "threads": urls,
    "integration": integration,
    "training": training,
    "sweep": dated(sweep),
    "tuned": tuned,
    "learned": learned,
    "regalloc": regalloc,
    "compilation": compilation,
    "workers": dated(workers),
    "scale": dated(scale),
    "peers": dated(peers),
}
PICTURES: dict[str, tuple[Callable[[Found, Path], None], str]] = {
    "inline": (draw_inline, "Time that the questions add to a build of zstd, by URL"),
    "sweep": (draw_sweep, "Sum of the round trips, compared with shared memory"),
    "compilation": (draw_compilation, "Time of a question in a compilation, by transport"),
    "scale": (draw_scale, "Answers a second of one Python host, by number of compilers"),
    "training": (
        draw_training,
        "Time of a training with five compilers, compared with shared memory",
    ),
    "peers": (draw_peers, "Median time of a question back to back, by library"),
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
    if name not in found:
        return [f"Not measured yet: `python bench results --only {name}`.", ""]
    lines = [*TABLES[name](found[name]), ""]
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
