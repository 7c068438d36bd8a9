"""The compilers of a trainer: which module each environment compiles, and what starts ahead."""

import itertools
import os
import sys
import time
import types

import pytest
from support.compilations import marked
from support.processes import until, words_of

from shmbridge import Host
from shmbridge._bridge import overview
from shmbridge.errors import InvalidError
from shmbridge.training import Workers

BOUND = 20  # seconds, of every wait


@pytest.fixture
def opened(name, corpus):
    """opened(task, channels=16): (host, workers), open until the test ends."""
    made = []

    def make(task, channels=16, ahead=True):
        host = Host(name, channels=channels)
        workers = Workers(task, corpus.sampler(1))
        made.extend((workers, host))
        workers.open(host.url, channels if ahead else 0)
        return host, workers

    yield make
    for each in made:
        each.close()


def modules_of(workers, environment, count, seed=None):
    """The modules that an environment compiles, one after another."""
    found = []
    for i in range(count):
        label = workers.begin(environment, seed if i == 0 else None)
        found.append(workers.module(label).name)
        assert workers.outcome(label, BOUND).ok
    return found


@pytest.mark.parametrize(("threads", "warned"), [(1, False), (1000, True)])
def test_threads_of_pytorch_that_compete_with_compilers_are_warned_of(
    opened, py, monkeypatch, recwarn, threads, warned
):
    torch = types.SimpleNamespace(get_num_threads=lambda: threads)
    monkeypatch.setitem(sys.modules, "torch", torch)
    _, workers = opened(py("ask()"))
    workers.begin(0)
    workers.begin(0)
    assert ["set_num_threads(1)" in str(each.message) for each in recwarn] == [True] * warned


def test_a_compiler_asks_under_its_label_and_its_outcome_is_told(opened, py):
    host, workers = opened(
        py("ask(2); open(output, 'w').write('12345')", scores={"n": os.path.getsize})
    )
    label = workers.begin(0)
    for _ in range(2):
        request = host.receive(BOUND)
        assert request.label == label
        assert workers.outcome(label, 0) is None
        request.reply(1)
    outcome = workers.outcome(label, BOUND)
    assert (outcome.kind, outcome.module) == ("ok", workers.module(label).name)
    assert outcome.scores == {"n": 5} and workers.outcome(label) is outcome
    assert workers.counts == {"ok": 1}


def test_an_environment_takes_the_samplers_modules(opened, sh, corpus):
    _, workers = opened(sh("true"), channels=1)  # too few to start ahead
    found = modules_of(workers, 0, 6)
    assert found == [module.name for module in itertools.islice(corpus.sampler(1), 6)]


def test_a_seed_tells_the_modules_of_its_environment_alone(opened, sh, corpus):
    _, workers = opened(sh("true"))
    expected = [module.name for module in itertools.islice(corpus.sampler(5), 4)]
    modules_of(workers, 1, 2)
    assert modules_of(workers, 0, 4, seed=5) == expected
    modules_of(workers, 1, 3)
    assert modules_of(workers, 0, 4, seed=5) == expected
    assert modules_of(workers, 2, 4, seed=5) == expected


def test_what_is_ended_ahead_is_compiled_later(opened, sh, corpus):
    _, workers = opened(sh("true"), channels=5)
    names = [m.name for m in itertools.islice(corpus.sampler(5), 4)]
    assert modules_of(workers, 0, 2, seed=5) == names[:2]  # and the third is ahead
    workers.begin(0, options={"module": "a.txt"})
    for environment in (1, 2):  # the third is too much for five channels
        workers.begin(environment)
    assert modules_of(workers, 0, 2) == names[2:]


def test_an_option_names_the_module(opened, sh, corpus):
    _, workers = opened(sh("true"))
    for name in ("b.txt", "b.txt", "c.txt"):
        assert workers.module(workers.begin(0, options={"module": name})).name == name
    assert workers.module(workers.begin(0, options={"module": corpus[0]})) == corpus[0]
    with pytest.raises(InvalidError, match="expected a module of the corpus"):
        workers.begin(0, options={"module": "nowhere"})


def test_labels_differ(opened, sh):
    _, workers = opened(sh("true"))
    assert len({workers.begin(environment) for environment in (0, 1, 0, 1, 2)}) == 5


def test_workers_need_a_sampler(sh, corpus):
    with pytest.raises(InvalidError, match="expected corpus.sampler"):
        Workers(sh("true"), corpus)


def test_what_was_not_begun_is_an_error(opened, sh, corpus):
    with pytest.raises(InvalidError, match="open"):
        Workers(sh("true"), corpus.sampler(1)).begin(0)
    _, workers = opened(sh("true"))
    with pytest.raises(InvalidError, match="label"):
        workers.outcome("nobody", 0)
    workers.end("nobody")
    label = workers.begin(0)
    workers.end(label)
    with pytest.raises(InvalidError, match="label"):
        workers.outcome(label, 0)


def sleepers(mark):
    return sum("sleep 1000" in words_of(pid) for pid in marked(mark))


def test_the_end_of_a_compiler_ends_all_that_it_started(opened, sh, no_leftovers):
    _, workers = opened(sh("setsid sleep 1000 & sleep 1000"))
    labels = [workers.begin(environment) for environment in range(3)]
    until(lambda: sleepers(no_leftovers) == 6)
    workers.end(labels[0])
    assert sleepers(no_leftovers) == 4 and workers.counts == {"ended": 1}
    workers.begin(1)
    until(lambda: sleepers(no_leftovers) == 6)  # it began anew, and the next starts ahead
    workers.close()
    assert sleepers(no_leftovers) == 0
    workers.close()


# ---- Ahead ----


def waiting(host):
    """How many compilers wait for the host, to be accepted or answered."""
    return sum(channel.waits or channel.connects for channel in overview.bridge(host.name).channels)


def test_from_its_second_time_on_an_environments_next_compiler_starts_ahead(opened, py):
    host, workers = opened(py("ask()"))
    label = workers.begin(0)
    assert host.receive(BOUND).reply(0) and workers.outcome(label, BOUND).ok
    label = workers.begin(0)
    until(lambda: waiting(host) == 2)
    requests = {request.label: request for request in (host.receive(BOUND), host.receive(BOUND))}
    requests.pop(label).reply(0)
    (early,) = requests
    assert workers.ahead(early) and not workers.ahead(label)
    assert workers.outcome(label, BOUND).ok
    assert workers.begin(0) == early and not workers.ahead(early)


def test_nothing_starts_ahead_unless_the_trainer_keeps_what_it_asks(opened, sh):
    _, workers = opened(sh("true"), ahead=False)
    modules_of(workers, 0, 3)
    assert not workers._ahead


def test_nothing_starts_ahead_where_the_host_has_too_few_channels(opened, py):
    host, workers = opened(py("ask()"), channels=3)
    for environment in (0, 0):
        workers.begin(environment)
    until(lambda: waiting(host) == 2)
    # Two and two are more than three.
    labels = [workers.begin(environment) for environment in (1, 0)]
    until(lambda: waiting(host) == 2)
    assert not workers._ahead
    asked = set()
    while asked != {*labels}:
        asked.add(host.receive(BOUND).label)


def test_who_waits_ahead_is_not_late(opened, py):
    host, workers = opened(py("ask()", seconds=3))
    workers.begin(0)
    workers.begin(0)
    until(lambda: waiting(host) == 2)
    time.sleep(3.5)
    label = workers.begin(0)
    assert workers.outcome(label, 0) is None
    workers.end(label)


def test_a_seed_ends_what_started_ahead(opened, py, no_leftovers):
    host, workers = opened(py("ask()"))
    workers.begin(0)
    workers.begin(0)
    until(lambda: waiting(host) == 2)
    workers.begin(0, seed=3)
    until(lambda: waiting(host) == 1)
    assert sum("compiler-" in words_of(pid) for pid in marked(no_leftovers)) == 1
