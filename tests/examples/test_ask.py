"""The compilers that ask about functions: C, C++ and Python find the same ones, and count the same
in them."""

import subprocess
import sys

import pytest

from shmbridge import Host

SOURCE = """#include <stdio.h>
enum { A, B };
static int declared(int x);
static const char *names[] = {"a(", "b"};
static int one_line(int x) { return x * 2; }
static double after_one_line(void) {
    if (names[0]) return 1;
    for (int i = 0; i < 3; i++) puts("}");
    return 0;
}

int
head_of_two_lines(int a,
                  int b)
{
    return a + b;
}
struct s { int x; };
int last(struct s *s) {
    return s->x;
}
"""
FOUND = ["one_line", "after_one_line", "head_of_two_lines", "last"]


@pytest.mark.parametrize(
    "source", [SOURCE, SOURCE + "\n", SOURCE.rstrip("\n")], ids=["as it is", "empty line", "cut"]
)
@pytest.mark.parametrize("language", ["c", "cpp", "python"])
def test_each_language_asks_the_same(
    language, source, examples, tmp_path, c_program, name, in_thread
):
    path = tmp_path / "file.c"
    path.write_text(source)
    program = {
        "c": lambda: [c_program(examples / "c/ask.c")],
        "cpp": lambda: [c_program(examples / "cpp/ask.cpp")],
        "python": lambda: [sys.executable, examples / "python/ask.py"],
    }[language]()
    asked = []

    def model(request):
        asked.append((request["function"], *request["features"]))
        return 1

    with Host(name) as host:
        serving = in_thread(host.serve, model)
        more = [str(len(FOUND))] if language == "c" else []
        subprocess.run([*program, host.url, path, *more], check=True, timeout=60)
        host.close()
        serving.result()
    assert [found for found, *_ in asked] == FOUND
    lines, statements = ([features[i] for _, *features in asked] for i in (0, 1))
    assert (lines, statements) == ([0, 4, 5, 2], [1, 5, 1, 1])
