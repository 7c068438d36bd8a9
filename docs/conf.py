"""Sphinx: sphinx-build -W --keep-going -n -c docs . build/docs (with -b man: the man pages).

The pages are Markdown that reads well on GitHub too. The source is the whole repository, so that every link between pages is checked.
"""

import html
import re
import subprocess
import tomllib
from pathlib import Path

from docutils import nodes
from sphinx import addnodes

import shmbridge

INCLUDE = Path(__file__).parents[1] / "cdef" / "include"

project = "shmbridge"
author = "the shmbridge authors"
copyright = "the shmbridge authors. Apache-2.0 WITH LLVM-exception"  # noqa: A001
release = version = shmbridge.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "hawkmoth",
    "sphinx_copybutton",
]
root_doc = "README"
include_patterns = [
    "*.md",
    "docs/*.md",
    "examples/*.md",
    "examples/**/*.md",
    "bench/*.md",
    "tests/conformance/*.md",
]
exclude_patterns = ["examples/*/build"]  # other people's programs, which an example has fetched
html_theme = "furo"
html_title = f"shmbridge {release}"
html_static_path, html_css_files = ["_static"], ["wide.css"]
html_favicon = "_static/favicon.svg"
# Each page has a link to edit it as soon as pyproject.toml has the repository's address.
urls = tomllib.loads((INCLUDE.parents[1] / "pyproject.toml").read_text())["project"].get("urls", {})
if "Repository" in urls:
    html_theme_options = {"source_repository": urls["Repository"], "source_branch": "main"}
    html_theme_options["source_directory"] = ""
html_extra_path = ["_root"]  # index.html, which leads to README.html
myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]
# As on GitHub, a line may begin with %, and a command in a help text keeps its quotes and its --.
myst_disable_syntax = ["myst_line_comment", "myst_block_break"]
smartquotes = False
pygments_style = "friendly"

hawkmoth_root = str(INCLUDE)
BUILTIN = subprocess.run(
    ["cc", "-print-file-name=include"], capture_output=True, text=True, check=True
).stdout.strip()
hawkmoth_clang = [f"-I{INCLUDE}", f"-I{BUILTIN}"]  # stddef.h is a compiler's
hawkmoth_clang_cpp = ["-std=c++17"]
hawkmoth_autoconf = []

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
# Not installed for the site. A mocked base class would hide its subclasses' parameters.
autodoc_mock_imports = ["google", "grpc", "onnxruntime", "onnxscript"]
autodoc_mock_imports += ["stable_baselines3", "torch"]
autodoc_default_options = {"members": True}
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
toc_object_entries_show_parents = "hide"

# Types of other projects, whose pages are not linked: the build needs no network.
nitpick_ignore_regex = [
    (r"c:identifier", r"u?int\d+_t|size_t|SHMB_STATUSES"),
    (
        r"cpp:identifier",
        r"u?int\d+_t|size_t|shmb_\w+|shmbridge",
    ),  # C's, which have a page of their own
    (r"py:.*", r"(?!shmbridge\.).*"),
    (r"py:.*", r"shmbridge\.(\w+\.)*_.*"),
]

man_pages = [
    (
        "docs/command-line",
        "shmbridge",
        "ask a machine-learning model for a compiler's decisions",
        author,
        1,
    ),
    ("docs/reference-c", "shmbridge", "the C API of shmbridge", author, 3),
    (
        "docs/protocol",
        "shmbridge",
        "the bytes and the steps of shmbridge's shared memory",
        author,
        7,
    ),
]


def plain_text(app, what, name, obj, options, lines):
    """Docstrings write code between single backquotes, as Markdown does. The type of what is returned
    is in the signature, so what napoleon takes for one is the text before a colon."""
    text = re.sub(
        r"^:returns: (.*(?:\n .*)*)\n:rtype: (.*)",
        r":returns: \2: \1",
        "\n".join(lines),
        flags=re.M,
    )
    lines[:] = re.sub(r"(?<![:`\w])`([^`\n]+)`(?!`)", r"``\1``", text).split("\n")


def c_text(app, lines, *about):
    """Comments of the headers: a star outside of code is a pointer's, and indented lines are code. One
    such as "---- Open ----" is a heading: see `sections`."""
    if title := re.fullmatch(r"-{4} (.+?) -{4,}", "\n".join(lines).strip()):
        lines[:] = [f".. rubric:: {title[1]}", "   :class: heading"]
        return
    parts = re.split(r"^((?: {4}.*(?:\n|\Z))+)", "\n".join(lines), flags=re.MULTILINE)
    for i, part in enumerate(parts):
        if i % 2:
            parts[i] = f"\n::\n\n{part}\n"
        else:
            text = re.sub(r"(?<![\\`])\*(?=\w)", r"\\*", part).split("\n")
            plain_text(app, None, None, None, None, text)
            parts[i] = "\n".join(text)
    lines[:] = "".join(parts).split("\n")


def navigation(app, docname, source):
    """The front page is README. Only the site needs the list of all pages, and that of the examples."""
    if docname == root_doc:
        source[0] += (Path(__file__).parent / "navigation.txt").read_text()
    if docname == "examples/README":
        source[0] += "\n```{toctree}\n:hidden:\n:glob:\n\n**/README\n```\n"


def sections(app, doctree):
    """What follows a heading of a header becomes its section, since a directive cannot make any; so
    does a class of C++ or Python, or a function of Python. A header's own comment needs no name."""
    for guard in list(doctree.findall(addnodes.desc)):
        if re.fullmatch(r"SHMBRIDGE\w*_H(PP)?", guard[0].astext()):
            guard.replace_self(guard[1].children)
    for heading in reversed(list(doctree.findall(nodes.rubric))):
        if "heading" in heading["classes"]:
            parent, at = heading.parent, heading.parent.index(heading)
            end = parent.first_child_matching_class(nodes.section, at) or len(parent)
            section = nodes.section("", nodes.title("", "", *heading.children))
            section += parent[at + 1 : end]
            section["ids"] = [nodes.make_id(f"{parent[0].astext()} {heading.astext()}")]
            parent[at:end] = [section]
    headed = {"py": ("class", "function"), "cpp": ("class", "struct")}
    for each in list(doctree.findall(addnodes.desc)):
        shown = each["objtype"] in headed.get(each["domain"], ())
        found = re.search(r"shmbridge(?:::|\.)(?:\w+\.)*(\w+(?:<\w+>)?)", each[0].astext())
        if shown and found and isinstance(each.parent, nodes.section):
            title = nodes.title("", found[1])
            section = nodes.section("", title, ids=[nodes.make_id(f"see {found[1]}")])
            each.replace_self(section)
            section += each


def short_code(app, doctree):
    """Code that fits on a line of a phone is not broken at its hyphens."""
    for literal in doctree.findall(nodes.literal):
        if len(literal.astext()) < 32:
            literal["classes"].append("short")


def description(app, pagename, templatename, context, doctree):
    """A page's first paragraph is what search engines show."""
    paragraph = next(doctree.findall(nodes.paragraph), None) if doctree else None
    if paragraph:
        text = html.escape(" ".join(paragraph.astext().split())[:300])
        context["metatags"] = (
            f'{context.get("metatags", "")}<meta name="description" content="{text}">'
        )


def setup(app):
    """Called by Sphinx."""
    app.connect("doctree-read", sections, priority=100)  # before the contents are collected
    app.connect("doctree-read", short_code)
    app.connect("source-read", navigation)
    app.connect("html-page-context", description)
    app.connect("hawkmoth-process-docstring", c_text)
    app.connect("autodoc-process-docstring", plain_text)
