"""The table of what passed and what cannot be, printed when pytest ends."""

from collections import Counter, defaultdict

from combinations import LANGUAGES


class Table:
    def __init__(self):
        self.counts = defaultdict(Counter)  # by combination: outcomes
        self.excuses = Counter()  # by entry of cannot.toml

    def note(self, combination, outcome, entry):
        self.counts[combination][outcome] += 1
        if outcome == "cannot":
            self.excuses[entry] += 1

    def pytest_terminal_summary(self, terminalreporter):
        write = terminalreporter.write_line
        terminalreporter.section("conformance: cases passed + cannot be")
        write("".join(f"{word:<16}" for word in ("runner", "SerDes", *LANGUAGES)).rstrip())
        for runner, serdes in dict.fromkeys(combination[:2] for combination in self.counts):
            cells = [self.cell(runner, serdes, language) for language in LANGUAGES]
            write("".join(f"{word:<16}" for word in (runner, serdes, *cells)).rstrip())
        for entry, count in self.excuses.items():
            write(
                f"{count:4} {entry.where:<24} {', '.join(entry.cases)}: {entry.instead}: {entry.reason}"
            )

    def cell(self, runner, serdes, language):
        counts = self.counts.get((runner, serdes, language))
        if not counts:
            return "-"
        failed = f" ({counts['failed']} failed)" if counts["failed"] else ""
        return f"{counts['passed']} + {counts['cannot']}{failed}"
