"""The tables of compilers that ask: deploy.py, integration.py, training.py, tuned.py, allocator.py, and the
example inline_for_size."""

import statistics

from bench.pages.tables import Found, caption, change, conditions, per, span, table


def inline(found: Found) -> list[str]:
    """One policy at several URLs."""
    plain = found["ways"][0]
    rows = []
    for way in found["ways"]:
        row = [f"`{way['way']}`", span(per(way["seconds"], plain["seconds"]))]
        cpu = statistics.median(way["host_cpu_seconds"])
        row.append(f"{cpu:.2f} s" if cpu else "-")  # of no host, or of another way's
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
        [
            f"`{each['name']}`",
            each["lines"],
            each["using"],
            kilobytes(each["bytes"]),
            f"{each['seconds']:.1f} s",
        ]
        for each in found["rows"]
    ]
    head = ["plug-in", "lines of code", "that use the library", "built", "in"]
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
    """Trainings by URL: a column for each."""
    rows: list[list[object]] = [["episodes", *(each["episodes"] for each in found["rows"])]]
    for way in found["rows"][0]["ways"]:
        rows.append([f"`{way}`"])
        for each in found["rows"]:
            its, shm = ([t[-1] for t in each["ways"].get(name, [])] for name in (way, "shm"))
            ratio = f"{span(shm)} s" if way == "shm" else span(per(its, shm)) if its else "-"
            rows[-1].append(ratio)
    head = ["time / shm", *(each["name"] for each in found["rows"])]
    return [*caption(conditions(found)), *table(head, rows)]


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
