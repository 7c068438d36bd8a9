"""The pictures of docs/results.md and docs/performance.md, which need matplotlib."""

import statistics
import sys
from collections.abc import Callable
from pathlib import Path

from bench.pages.tables import Found, per, short
from bench.pages.transport_tables import WAYS
from bench.program import ROOT

FOLDER = ROOT / "docs/pictures"
GREY, BLUE = "#59636e", "#0969da"  # as those of docs/pictures.py, on light pages and on dark ones
DARK = f"""@media (prefers-color-scheme: dark) {{
[style*="{GREY}"] {{ fill: #9198a1 !important }} [style*="{BLUE}"] {{ fill: #58a6ff !important }} }}"""


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
    """Time of a training with a process for each action, as multiples of shared memory's."""
    seconds = {row["name"]: row["ways"] for row in found["rows"]}
    ratios = {
        name: statistics.median(
            a[-1] / b[-1] for a, b in zip(ways["original"], ways["shm"], strict=True)
        )
        for name, ways in seconds.items()
    }
    bars(ratios, short, path)


PICTURES: dict[str, tuple[Callable[[Found, Path], None], str]] = {
    "inline": (draw_inline, "Time that the questions add to a build of zstd, by URL"),
    "sweep": (draw_sweep, "Sum of the round trips, compared with shared memory"),
    "compilation": (draw_compilation, "Time of a question in a compilation, by transport"),
    "scale": (draw_scale, "Answers a second of one Python host, by number of compilers"),
    "training": (
        draw_training,
        "Time of a training with a process for each action, compared with shared memory",
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
            picture(found[name], FOLDER / f"{name}.svg")
