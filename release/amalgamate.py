"""Writes the runner's side of the C library as two files: amalgamate.py DIRECTORY

shmbridge.c is compiled as C11 or later, with -pthread and the libraries rt and dl; shmbridge.h is
the public headers in one. A compiler takes them into its source tree.
"""

import re
import sys
from collections import Counter
from pathlib import Path

CDEF = Path(__file__).parents[1] / "cdef"
PUBLIC = ["shmbridge.h", "shmbridge/model.h", "shmbridge/environment.h", "shmbridge/plugin.h"]
# The host's side, and what serves compilers that know nothing of shmbridge.
LEFT_OUT = "command host llvm pipe/conversation.c pipe/frames.c pipe/pipe_server.c runner/serve.c"
INCLUDE = re.compile(r'^#include "(.*)"\n', re.MULTILINE)
# What a file has for itself, as the core's style writes it: structs, functions, data, constants.
OWN = re.compile(
    r"^(struct \w+)(?= \{)"
    r"|^static (?:__attribute__\(\(.*?\)\) )?[^;={(]*?\b(?!struct \{)(\w+)(?= ?[({=;\[])"
    r"|^enum \{(.*?)\};",
    re.MULTILINE | re.DOTALL,
)
CONSTANT = re.compile(r"\b([A-Z][A-Z_]+)(?= =)")
START = """\
/* shmbridge {version}: how a compiler asks a machine-learning model. Generated from its source. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define SHMB_VERSION_TEXT "{version}"
#include "shmbridge.h"
"""


def sources() -> list[Path]:
    """The files of the runner's side."""
    left_out = [CDEF / "src" / name for name in LEFT_OUT.split()]
    files = sorted((CDEF / "src").rglob("*.c"))
    return [file for file in files if not {file, *file.parents}.intersection(left_out)]


def headers(file: Path, seen: dict[Path, str]) -> None:
    """Adds what the file includes to `seen`, each after what it includes itself."""
    for name in INCLUDE.findall(file.read_text()):
        header = CDEF / "src" / name
        if name not in PUBLIC and header not in seen:
            headers(header, seen)
            seen[header] = INCLUDE.sub("", header.read_text())


def own_names(text: str) -> set[str]:
    """The names that a file does not share."""
    found = OWN.findall(text)
    constants = {name for _, _, enum in found for name in CONSTANT.findall(enum)}
    return {name for struct, other, _ in found for name in (struct, other) if name} | constants


def body(file: Path, shared: set[str]) -> str:
    """A source file without its includes. Names that several files have for themselves end in the
    file's name; members keep theirs."""
    text = INCLUDE.sub("", file.read_text())
    for name in own_names(text) & shared:
        text = re.sub(rf"(?<![.>\w]){name}\b", f"{name}_{file.stem}", text)
    if file.stem == "error":  # with _GNU_SOURCE, glibc's strerror_r is another function
        text = re.sub(r"#undef _GNU_SOURCE.*\n.*_POSIX_C_SOURCE.*\n", "", text)
        text = "#ifdef __GLIBC__\nint __xpg_strerror_r(int, char *, size_t);\n" + (
            f"#define strerror_r __xpg_strerror_r\n#endif\n{text}"
        )
    return text


def main(directory: Path) -> None:
    public = "".join(INCLUDE.sub("", (CDEF / "include" / name).read_text()) for name in PUBLIC)
    version = ".".join(re.findall(r"#define SHMB_VERSION_\w+ (\d+)", public))
    files, seen = sources(), dict[Path, str]()
    for file in files:
        headers(file, seen)
    texts = [*seen.values(), *(file.read_text() for file in files)]
    counts = Counter(name for text in texts for name in own_names(text))
    shared = {name for name, count in counts.items() if count > 1}
    parts = [START.format(version=version), *seen.values(), *(body(file, shared) for file in files)]
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "shmbridge.h").write_text(public)
    (directory / "shmbridge.c").write_text("\n".join(parts))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
