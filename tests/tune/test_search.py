"""The search of decisions, with a compiler that is a table: sizes of calls, and static callees that
vanish once all their calls are inlined."""

import random

import pytest

from shmbridge._llvm.plan import Site
from shmbridge._tune.results import FAILED, Call, Results
from shmbridge._tune.search import Search, flip_rounds
from shmbridge._tune.tuning import _Candidate


class Compiler:
    """Functions that call those before them. What an inlined call adds to its caller is drawn."""

    def __init__(self, seed, functions=60, calls=4):
        draw = random.Random(seed)
        self.calls, self.added, self.sizes = {}, {}, {}
        for caller in range(functions):
            self.sizes[f"f{caller}"] = draw.randint(20, 60)
            for _ in range(draw.randint(0, calls) if caller else 0):
                site = Site(draw.getrandbits(64), 1)
                called = draw.randrange(max(0, caller - 8), caller)
                default, callee = draw.randint(0, 1), f"f{called}"
                alike, doubt = 2 * called + default, draw.randint(0, 100)
                self.calls[site] = Call(default, alike, doubt, f"f{caller}", callee)
                self.added[site] = self.sizes[callee] + draw.randint(-45, 10)
        self.static = {name for name in self.sizes if draw.random() < 0.3}
        self.compiled = 0

    def flipped(self, flips):
        """The calls that these reverse, alone or by their group."""
        both = self.calls.items()
        return {s for s, call in both if (s in flips) != (Results.group(call) in flips)}

    def compile(self, flips):
        """Its functions' sizes."""
        self.compiled += 1
        flipped = self.flipped(flips)
        inlined = {site for site, call in self.calls.items() if call.default ^ (site in flipped)}
        sizes, kept = dict(self.sizes), set(self.sizes)
        for site, call in self.calls.items():
            sizes[call.caller] += self.added[site] * (site in inlined)
        called = {call.callee for call in self.calls.values()} & self.static
        for name in called - {self.calls[site].callee for site in self.calls.keys() - inlined}:
            kept.discard(name)
        return {name: size for name, size in sizes.items() if name in kept}


def search(compiler, path, budget=10**6, whole=False, fails=lambda flips: False):
    """What the search finds with a number of compilations. whole: without the parts of scores."""
    results = Results(path)
    found = Search(None, 10**9, results)
    steps = flip_rounds(found, 0)
    wanted = next(steps)
    first = None
    while True:
        answers = {}
        for flips in wanted:
            if results.find(flips) is None and compiler.compiled < budget:
                sites = results.sites_of(flips)
                flipped = compiler.flipped(sites)
                parts = compiler.compile(sites)
                score = float(sum(parts.values())) if not fails(flipped) else FAILED
                first = first or score
                numbered = enumerate(compiler.calls.items())  # no groups either
                calls = {s: Call(c.default, n, c.doubt, "", str(n)) for n, (s, c) in numbered}
                known = (calls, {"": score}) if whole else (compiler.calls, parts)
                results.add(known[0], flipped, flips, score, known[1])
            if (result := found.use(flips)) is not None:
                answers[flips] = result
        if len(answers) < len(wanted):
            break
        try:
            wanted = steps.send(answers)
        except StopIteration:
            break
    results.close()
    return first, found


@pytest.mark.parametrize("seed", range(5))
def test_it_tries_many_decisions_in_one_compilation(tmp_path, seed):
    fast, slow = Compiler(seed), Compiler(seed)
    plain, many = search(fast, tmp_path / "many", budget=40)
    _, single = search(slow, tmp_path / "single", budget=40, whole=True)
    assert len(fast.calls) > 80
    assert plain - many.after > 2 * (plain - single.after) >= 0


@pytest.mark.parametrize("seed", range(5))
def test_at_its_end_no_single_decision_helps(tmp_path, seed):
    compiler = Compiler(seed)
    _, found = search(compiler, tmp_path / "results")
    kept = {*found.results.sites_of(found.best.flipped)}
    for site in compiler.calls:
        assert sum(compiler.compile(kept ^ {site}).values()) >= found.after


@pytest.mark.parametrize("whole", [False, True])
def test_a_search_that_continues_finds_the_same_and_compiles_nothing_twice(tmp_path, whole):
    at_once = Compiler(1)
    _, found = search(at_once, tmp_path / "once", whole=whole)
    again, last = Compiler(1), None
    for budget in 1, 7, 30, 10**6:
        _, last = search(again, tmp_path / "again", budget, whole=whole)
    assert again.compiled == at_once.compiled == len(found.results)
    assert last.after == found.after
    assert {*last.results.sites_of(last.best.flipped)} == {
        *found.results.sites_of(found.best.flipped)
    }


def test_decisions_with_which_the_compiler_fails_are_left_out(tmp_path):
    compiler = Compiler(2)
    bad = set(list(compiler.calls)[:5])
    plain, found = search(compiler, tmp_path / "results", fails=lambda flips: bad & {*flips})
    assert found.after < plain
    assert not bad & {*found.results.sites_of(found.best.flipped)}


def test_all_calls_of_a_function_are_reversed_although_each_one_changes_the_next_question():
    def ask(candidate, users):
        features = {"cost_estimate": 40, "threshold": 5, "inlining_default": 0}
        features |= {"callee_basic_block_count": 2}
        features |= {"callee_users": users, "caller_basic_block_count": 9 - users}
        return candidate.advise([*features.values()], features)

    plain = _Candidate(frozenset())
    assert [ask(plain, users) for users in (3, 3, 3)] == [0, 0, 0]
    first, *_, last = plain.asked
    group = Results.group(plain.asked[first])
    assert [ask(_Candidate(frozenset([group])), users) for users in (3, 2, 1)] == [1, 1, 1]
    but_one = _Candidate(frozenset([group, first]))
    assert [ask(but_one, users) for users in (3, 3, 2)] == [0, 1, 1]
    assert plain.asked[last].doubt == 35
