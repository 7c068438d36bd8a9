"""The table of what passed and what cannot be, printed when pytest ends."""

import re
from collections import Counter, defaultdict

LANGUAGES = "c", "cpp", "python", "pure"
counts = defaultdict(Counter)  # by runner, SerDes and language: outcomes


def pytest_runtest_logreport(report):
    cell = re.search(r"test_conformance\.py::test\[(.+?)/(.+?)/(.+?)-", report.nodeid)
    if cell and (report.when == "call" or report.failed):
        cannot = ("cannot", True) in report.user_properties
        counts[cell.groups()]["cannot" if cannot and report.passed else report.outcome] += 1


def pytest_terminal_summary(terminalreporter):
    write = terminalreporter.write_line
    if counts:
        terminalreporter.section("conformance: cases passed + cannot be")
        write("".join(f"{word:<16}" for word in ("runner", "SerDes", *LANGUAGES)).rstrip())
    for runner, serdes in sorted({combination[:2] for combination in counts}):
        cells = [printed(counts.get((runner, serdes, language))) for language in LANGUAGES]
        write("".join(f"{word:<16}" for word in (runner, serdes, *cells)).rstrip())


def printed(outcomes):
    if not outcomes:
        return "-"
    failed = f" ({outcomes['failed']} failed)" if outcomes["failed"] else ""
    return f"{outcomes['passed']} + {outcomes['cannot']}{failed}"
