"""Draws docs/pictures/*.svg: the drawings of the pages, and plots of figures that the pages or
docs/results/*.json have. Each is 420 px wide, so that a phone shows it without shrinking the text.

python docs/pictures.py
"""

import json
import re
from pathlib import Path
from xml.sax.saxutils import escape

HERE = Path(__file__).parent
WIDTH = 420
STYLE = """
text { font: 14px system-ui, sans-serif; fill: #1f2328 } .small { font-size: 12px }
.title { font-weight: 600 } .middle { text-anchor: middle } .end { text-anchor: end }
.box { fill: #f6f8fa; stroke: #59636e } .model { fill: #ddf4ff; stroke: #0969da }
.memory { fill: none; stroke: #59636e; stroke-dasharray: 4 3 }
.curve { fill: none } .line { stroke: #59636e; fill: none } .axis { stroke: #d0d7de } .ours { stroke: #0969da; stroke-width: 2 }
.dot { fill: #0969da } .other { fill: none; stroke: #59636e; stroke-width: 1.5 } .head { fill: #59636e }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .box { fill: #161b22; stroke: #9198a1 } .model { fill: #10233f; stroke: #58a6ff }
.memory, .line, .other { stroke: #9198a1 } .axis { stroke: #30363d } .ours { stroke: #58a6ff }
.dot { fill: #58a6ff } .head { fill: #9198a1 } }
"""


def text(x, y, words, kind=""):
    return f'<text x="{x:g}" y="{y:g}" class="{kind}">{escape(words)}</text>'


def box(x, y, width, height, words, kind="box"):
    """A box with lines of text in its middle."""
    lines = words.split("\n")
    top = y + height / 2 + 5 - 8.5 * (len(lines) - 1)
    drawn = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" class="{kind}"/>'
    return drawn + "".join(
        text(x + width / 2, top + 17 * row, line, "middle" if row == 0 else "small middle")
        for row, line in enumerate(lines)
    )


def line(*points, kind="line", ends=""):
    """A line through points; ends: "s" and "e" have arrow heads."""
    marks = "".join(
        f' marker-{at}="url(#head)"' for at, key in (("start", "s"), ("end", "e")) if key in ends
    )
    return (
        f'<polyline points="{" ".join(f"{x:g},{y:g}" for x, y in points)}" class="{kind}"{marks}/>'
    )


def picture(title, height, *parts):
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img">
<title>{escape(title)}</title>
<style>{STYLE}</style>
<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto-start-reverse"><path d="M0 0 8 4 0 8z" class="head"/></marker></defs>
{chr(10).join(parts)}
</svg>
"""


def places():
    """Where a model can be."""
    both = "se"
    return picture(
        "A model in another process, inside the compiler, or on another machine",
        342,
        text(4, 18, "In another process: shm://NAME", "title"),
        box(4, 30, 108, 60, "compiler\nor your pass"),
        box(146, 30, 120, 60, "shared memory\nquestion, answer", "memory"),
        box(300, 30, 116, 60, "model\nPython or ONNX", "model"),
        line((114, 60), (144, 60), ends=both),
        line((268, 60), (298, 60), ends=both),
        text(4, 132, "Inside the compiler: aot:// or onnx://", "title"),
        box(4, 144, 258, 60, "", "box"),
        text(58, 179, "compiler", "middle"),
        box(130, 152, 124, 44, "model\nmachine code", "model"),
        line((94, 174), (128, 174), ends=both),
        text(4, 246, "On another machine: grpc://", "title"),
        box(4, 258, 108, 60, "compiler"),
        box(150, 258, 112, 60, "relay\none a machine"),
        box(300, 258, 116, 60, "model\nGPU, or many", "model"),
        line((114, 288), (148, 288), ends=both),
        line((264, 288), (298, 288), ends=both),
        text(131, 336, "shared memory", "small middle"),
        text(281, 336, "gRPC", "small middle"),
    )


def run():
    """The processes of shmbridge run."""
    return picture(
        "shmbridge run starts the policy and the compiler, which share memory",
        300,
        box(120, 6, 180, 42, "shmbridge run"),
        line((160, 50), (90, 96), ends="e"),
        line((260, 50), (330, 96), ends="e"),
        text(62, 76, "starts", "small middle"),
        text(352, 76, "starts", "small middle"),
        box(4, 98, 160, 74, "clang\nwith a preloaded\nlibrary"),
        box(256, 98, 160, 74, "policy\nyour function,\nloaded once a file", "model"),
        line((166, 120), (254, 120), ends="e"),
        line((254, 150), (166, 150), ends="e"),
        text(210, 114, "features", "small middle"),
        text(210, 166, "advice", "small middle"),
        line((84, 174), (84, 222), ends="e"),
        text(94, 202, "it answered all", "small"),
        box(4, 224, 160, 46, "object file"),
        line((336, 174), (336, 222), ends="e"),
        box(256, 224, 160, 46, "clang again\nwithout the policy"),
        text(328, 202, "it failed", "small end"),
        line((254, 247), (166, 247), ends="e"),
        text(4, 292, "So each file follows the policy entirely, or not at all.", "small"),
    )


def channel():
    """The life of a message."""
    steps = [
        ("1", "The runner writes features into a free request slot."),
        ("2", "It stamps the slot's number into the request ring."),
        ("3", "The host reads the ring, and the features in place."),
        ("4", "It writes the advice into a reply slot, and stamps it."),
        ("5", "The runner reads the advice, and frees the reply slot."),
        ("6", "The request slot is free when the model drops it."),
    ]
    slots = [
        f'<rect x="{130 + 20 * n}" y="{y}" width="18" height="18" class="{kind}"/>'
        for y in (66, 136)
        for n, kind in enumerate(["model"] + ["box"] * 7)
    ]
    return picture(
        "A channel has a ring and slots for requests, and the same for replies",
        320,
        box(4, 30, 96, 140, "runner\nin the compiler"),
        box(320, 30, 96, 140, "host\nwith the model", "model"),
        box(116, 14, 188, 164, "", "memory"),
        text(210, 32, "a channel of the segment", "small middle"),
        line((100, 52), (318, 52), ends="e"),
        line((318, 122), (102, 122), ends="e"),
        text(130, 48, "1, 2", "small"),
        text(290, 118, "4", "small end"),
        *slots,
        text(210, 100, "requests: 8 slots", "small middle"),
        text(210, 170, "replies: 8 slots", "small middle"),
        *[
            text(4, 206 + 20 * n, f"{number}. {words}", "small")
            for n, (number, words) in enumerate(steps)
        ],
    )


ROW = re.compile(r"^\| (.+?) \| (.+?) \| (.+?) \| (.+?) \| .+ \|$", re.MULTILINE)
NUMBER = re.compile(r"([-+]?\d[\d.]*) %(?: \(([-+\d.]+) to ([-+\d.]+)\))?")


def gains():
    """The table of docs/gains.md as dots, with the ranges as lines."""
    page = (HERE / "gains.md").read_text()
    rows = []
    for name, _, found, random in ROW.findall(page):
        if (value := NUMBER.match(found)) and "optimum" not in found:
            name = re.sub(r"\[(.+?)\]\(.*?\)|\*\*", r"\1", name).replace("`", "")
            rows.append((name, value, NUMBER.match(random)))
    low, high, top = -27, 34, 40

    def x(percent):
        return 10 + (WIDTH - 20) * (float(percent) - low) / (high - low)

    parts = [text(4, 18, "Change against the compiler's own heuristic", "title")]
    for row, (name, value, random) in enumerate(rows):
        y = top + 46 * row
        parts.append(text(4, y + 14, name if len(name) < 62 else f"{name[:60]}…", "small"))
        parts.append(line((10, y + 29.5), (WIDTH - 10, y + 29.5), kind="axis"))
        parts.append(line((x(0), y + 20), (x(0), y + 39), kind="line"))
        for found, at, kind in ((random, y + 34, "other"), (value, y + 25, "dot")):
            if found:
                if found[2]:
                    ends = "line" if kind == "other" else "ours"
                    parts.append(line((x(found[2]), at), (x(found[3]), at), kind=ends))
                parts.append(f'<circle cx="{x(found[1]):.1f}" cy="{at}" r="4" class="{kind}"/>')
    bottom = top + 46 * len(rows) + 6
    for percent in (-20, -10, 0, 10, 20):
        parts.append(
            text(x(percent), bottom + 14, f"{percent:+d} %" if percent else "0", "small middle")
        )
    parts.append(
        text(4, bottom + 36, "● policy or search   ○ random search, as many compilations", "small")
    )
    parts.append(
        text(4, bottom + 54, "Left of 0 is better. Lines: the range, as the table says.", "small")
    )
    return picture("Gains of all experiments, with random search beside", bottom + 64, *parts)


def ppo():
    """The learning curve of docs/trainer-libraries.md."""
    measured = json.loads((HERE / "results" / "ppo.json").read_text())
    points, single = (
        measured["episodes and mean reward since the last"],
        measured["best single factor"],
    )

    def x(episodes):
        return 44 + 360 * episodes / 20_000

    def y(reward):
        return 190 - 400 * reward

    return picture(
        "Cycles that PPO's policy saves, by the number of episodes",
        270,
        text(4, 18, "Cycles that unrolling saves, mean of 1024 episodes", "title"),
        *[line((44, y(level)), (404, y(level)), kind="axis") for level in (0, 0.1, 0.2, 0.3)],
        *[text(38, y(level) + 4, f"{level:.0%}", "small end") for level in (0, 0.1, 0.2, 0.3)],
        *[
            text(x(at), 232, f"{at:,}".replace(",", " "), "small middle")
            for at in (0, 5000, 10_000, 15_000)
        ],
        line((44, y(single)), (404, y(single)), kind="memory"),
        text(404, y(single) + 16, "the best single factor for all loops", "small end"),
        line(*[(x(at), y(reward)) for at, reward in points], kind="ours curve"),
        *[
            f'<circle cx="{x(at):.1f}" cy="{y(reward):.1f}" r="3" class="dot"/>'
            for at, reward in points
        ],
        text(404, 256, "episodes of four compilers, half a minute", "small end"),
    )


if __name__ == "__main__":
    for draw in (places, run, channel, gains, ppo):
        (HERE / "pictures" / f"{draw.__name__}.svg").write_text(draw())
