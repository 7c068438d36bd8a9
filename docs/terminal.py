"""Draws docs/pictures/terminal.svg, the animation of README, from what its commands print.

python docs/terminal.py    # needs clang-22, and pip install 'shmbridge[compile]'
"""

import os
import subprocess
import tempfile
from pathlib import Path
from xml.sax.saxutils import escape

import onnx
from onnx import TensorProto, helper

PICTURE = Path(__file__).parent / "pictures" / "terminal.svg"
POLICY = """def advise(request):
    blocks = request["callee_basic_block_count"]
    return int(blocks[0] < 0)
"""
SOURCE = """static int square(int x) { return x * x; }
static int cube(int x) { return x * square(x); }
int sum(int n) { return n ? square(n) + cube(n) + sum(n - 1) : 0; }
"""
RUN = "shmbridge run --llvm inline"
# Each command, with the seconds for which the reader sees it before the next one. A phone shows lines
# of 53 columns without shrinking them much.
COMMANDS = [
    ("cat policy.py   # decides which calls clang inlines", 2.5),
    (f"{RUN} --host policy:advise \\\n    -- clang-22 -O2 -c sum.c && nm -j sum.o", 2.5),
    ("sed -i 's/< 0/< 4/' policy.py   # inline small ones", 1.5),
    (f"{RUN} --host policy:advise \\\n    -- clang-22 -O2 -c sum.c && nm -j sum.o", 3),
    ("python export.py   # the same rule, as p.onnx", 1),
    (f"{RUN} --connect onnx://p.onnx \\\n    -- clang-22 -O2 -c sum.c -o onnx.o", 1.5),
    ("shmbridge compile p.onnx -o p.so >log   # machine code", 1),
    (f"{RUN} --connect aot://p.so \\\n    -- clang-22 -O2 -c sum.c -o aot.o", 1.5),
    ("sha256sum *.o | cut -c 1-16,65-   # the same bytes", 6),
]
LINE, COLUMN, MARGIN = 19, 8.2, 10  # px


def write_model(path: str) -> None:
    """The same policy as an ONNX model; export.py of the session calls this."""
    name = "callee_basic_block_count"
    nodes = [
        helper.make_node("Less", [name, "limit"], ["small"]),
        helper.make_node("Cast", ["small"], ["advice"], to=TensorProto.INT64),
    ]
    ports = [helper.make_tensor_value_info(n, TensorProto.INT64, [1]) for n in (name, "advice")]
    limit = helper.make_tensor("limit", TensorProto.INT64, [1], [4])
    graph = helper.make_graph(nodes, "policy", ports[:1], ports[1:], [limit])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )


def run_all(folder: Path) -> list[tuple[str, list[str], float]]:
    """Each command, the lines that it printed, and the seconds until the next one."""
    (folder / "policy.py").write_text(POLICY)
    (folder / "sum.c").write_text(SOURCE)
    (folder / "export.py").write_text('import terminal\nterminal.write_model("p.onnx")\n')
    run = {"cwd": folder, "check": True, "text": True, "stdout": subprocess.PIPE}
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # both policies are of one second
    return [
        (
            command,
            subprocess.run(command, shell=True, env=environment, **run).stdout.split("\n")[:-1],
            pause,
        )
        for command, pause in COMMANDS
    ]


def draw(session: list[tuple[str, list[str], float]]) -> str:
    """The session as a picture in which the commands appear one after another, again and again. It
    begins with all of them, as a reader who scrolls past sees it."""
    length = sum(pause for *_, pause in session)
    start = f"{length}s -{length - session[-1][2]}s"
    began, row, styles, texts = 0.0, 0, [], []
    for number, (command, printed, pause) in enumerate(session):
        at = 100 * began / length
        styles.append(
            f"@keyframes k{number} {{ 0%, {at:.2f}% {{ opacity: 0 }} {at + 0.01:.2f}%, 100% {{ opacity: 1 }} }}"
            f" #c{number} {{ animation: k{number} {start} infinite }}"
            if number
            else ""
        )
        first, *rest = command.split("\n")
        code, mark, remark = first.partition("   #")
        rows = [
            f'<tspan class="prompt">$</tspan> {escape(code)}<tspan class="remark">{escape(mark + remark)}</tspan>'
        ]
        rows += [escape(line) for line in [*rest, *printed]]
        texts.append(f'<g id="c{number}">')
        for line in rows:
            row += 1
            texts.append(f'<text x="{MARGIN}" y="{MARGIN + LINE * row - 6}">{line}</text>')
        texts.append("</g>")
        began += pause
    width = 2 * MARGIN + COLUMN * max(
        2 + len(line) for command, _ in COMMANDS for line in command.split("\n")
    )
    height = 2 * MARGIN + LINE * row
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" viewBox="0 0 {width:.0f} {height}" role="img">
<title>A policy in Python, ONNX and machine code decides what clang inlines</title>
<style>
rect {{ fill: #f6f8fa; stroke: #d0d7de }}
text {{ font: 13.5px ui-monospace, Menlo, Consolas, monospace; fill: #1f2328; white-space: pre }}
.prompt {{ fill: #0969da }} .remark {{ fill: #59636e }}
@media (prefers-color-scheme: dark) {{
rect {{ fill: #161b22; stroke: #30363d }} text {{ fill: #e6edf3 }}
.prompt {{ fill: #58a6ff }} .remark {{ fill: #9198a1 }} }}
{chr(10).join(filter(None, styles))}
@media (prefers-reduced-motion) {{ g {{ animation: none !important }} }}
</style>
<rect x=".5" y=".5" width="{width - 1:.0f}" height="{height - 1}" rx="8"/>
{chr(10).join(texts)}
</svg>
"""


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        PICTURE.write_text(draw(run_all(Path(folder))))
