"""The search for attributes, with a model of a compiler; and the file of attributes."""

import math
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from shmbridge._tune import ALWAYS, NEVER, Function, Measured, Search, file_text, functions_of

NAMES = [f"f{i}" for i in range(8)]
NUMBERS = st.integers(0, 100)


def functions(calls):
    return {name: Function(False, 5, Counter(calls[name]), False) for name in NAMES}


@given(
    st.fixed_dictionaries({n: st.sets(st.sampled_from(NAMES), max_size=3) for n in NAMES}),
    st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=len(NAMES), max_size=len(NAMES)),
    st.integers(0, 60),
    st.randoms(use_true_random=False),
)
def test_the_result_was_measured_and_is_never_worse(calls, costs, budget, random):
    """Scores are any, and even lie; some candidates fail."""
    measured = {}

    def measure(candidates):
        results = []
        for each in candidates[: max(0, budget - len(measured))]:
            kinds = [("", ALWAYS, NEVER).index(each.get(name, "")) for name in NAMES]
            sizes = {
                name: float(cost[k]) for name, cost, k in zip(NAMES, costs, kinds, strict=True)
            }
            fails = each and random.random() < 0.1
            score = math.inf if fails else sum(sizes.values()) + random.randint(0, 3)
            key = tuple(sorted(each.items()))
            measured[key] = min(score, measured.get(key, score))
            results.append(Measured(score, {} if fails else sizes))
        return results

    search = Search(functions(calls), functions(calls), measure)
    search.run()
    if budget:
        assert measured[tuple(sorted(search.attributes.items()))] == search.score <= search.plain
    else:
        assert search.plain == math.inf and not search.attributes


def test_independent_savings_are_all_found():
    """Eight callees, each of one caller: half are smaller otherwise."""
    callers = {f"c{name}": Function(False, 5, Counter([name]), False) for name in NAMES}
    before = callers | {name: Function(True, 5, Counter(), False) for name in NAMES}
    runs = []

    def measure(candidates):
        results = []
        for each in candidates:
            sizes = {n: 10.0 - (each.get(n) == ALWAYS and n in NAMES[::2]) for n in NAMES}
            results.append(Measured(sum(sizes.values()), sizes))
            runs.append(each)
        return results

    search = Search(before, before, measure)
    search.run()
    assert search.attributes == dict.fromkeys(NAMES[::2], ALWAYS) and search.plain == 80
    assert search.score == 76 and len(runs) < 15


SYMBOLS = st.from_regex(r"[A-Za-z_$.][A-Za-z0-9_$.]*", fullmatch=True)


@given(st.dictionaries(SYMBOLS, st.sampled_from([ALWAYS, NEVER])))
def test_a_file_has_a_line_for_each_function(attributes):
    lines = [line.split(",") for line in file_text(attributes).splitlines()]
    assert {name: how for name, how in lines} == attributes


@given(SYMBOLS)
def test_functions_are_found_by_their_symbols(name):
    body = '  %2 = call i32 @g(i32 %0)\n  %3 = call i32 @"a,b"(i32 %0)\n  ret i32 %2\n'
    ir = f"define internal i32 @{name}(i32 %0) #0 {{\n{body}}}\n"
    ir += 'attributes #0 = { minsize "noinline"="x" }\n'
    found = functions_of(ir + 'define i32 @"a,b"(i32 %0) {\n}\n')
    assert found == {name: Function(True, 3, Counter("g"), name == "g")}


def test_decided_recursive_variadic_and_replaceable_functions_are_fixed():
    bodies = {
        "define void @a() #1 {": "",
        "define void @r() {": "  call void @r()\n",
        "define void @v(ptr %0, ...) {": "",
        "define weak void @w() {": "",
        "define linkonce_odr void @free() {": "  invoke void @a() to label %1 unwind label %2\n",
    }
    ir = "".join(f"{head}\n{body}}}\n" for head, body in bodies.items())
    found = functions_of(ir + "attributes #1 = { alwaysinline }\n")
    assert [name for name, function in found.items() if not function.fixed] == ["free"]
    assert found["free"].calls == {"a": 1}
