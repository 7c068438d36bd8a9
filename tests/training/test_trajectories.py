"""Whole compilations by a policy: what was asked and advised, one reward, and which candidate of
several decided."""

import itertools
import math
import os
import shutil
import signal
import time

import numpy as np
import pytest
from support.compilations import marked
from support.processes import until, words_of

from shmbridge import InvalidError
from shmbridge.training import Corpus, Outcome, Task, candidate_rewards, collect, relative_reduction

pytestmark = pytest.mark.timeout(120)

# Asks three times; the output is as many bytes as the advice says in all. Without a URL: 10.
SUMS = """
import os
advice = ask(3) if os.environ.get("SHMBRIDGE_URL") else [10]
open(output, "w").write("x" * sum(advice))
"""


def size(path):
    return path.stat().st_size


def compilers(mark):
    return [pid for pid in marked(mark) if "/compiler-" in words_of(pid)]


def by_step(batch):
    return batch["x"] * 2


def test_an_episode_has_what_was_asked_and_advised_and_one_reward(py, corpus):
    task = py(SUMS, scores={"size": size})
    episodes = {each.module.name: each for each in collect(by_step, task, corpus, num_workers=2)}
    assert episodes.keys() == {module.name for module in corpus}
    for episode in episodes.values():
        assert episode.outcome.ok and len(episode) == 3 and episode.decision == ""
        assert episode.features["x"].tolist() == [0, 1, 2]
        assert episode.advice["advice"].tolist() == [0, 2, 4]
        assert episode.reward == pytest.approx(1 - 6.01 / 10.01)


def test_a_policy_may_return_more_than_advice_and_use_its_arrays_again(py, corpus):
    advice = np.zeros(1, np.int64)

    def policy(batch):
        advice[:] = batch["x"] * 2
        extras = {"same": advice, "log_prob": -1.5 * batch["x"], "value": [[1, 2]] * len(batch)}
        batch["x"][:] = 99
        return advice, extras

    task = py(SUMS, scores={"size": size})
    for episode in collect(policy, task, corpus, num_workers=1):
        assert episode.features["x"].tolist() == [0, 1, 2]
        assert episode.advice["advice"].tolist() == episode.extras["same"].tolist() == [0, 2, 4]
        assert episode.extras["log_prob"].tolist() == [0, -1.5, -3]
        assert episode.extras["value"].shape == (3, 2)


def test_kinds_of_questions_have_episodes_of_their_own_and_shapes_may_change(py, corpus):
    task = py(
        """
        import os
        import numpy as np
        if os.environ.get("SHMBRIDGE_URL"):
            with connect() as runner:
                for n in (1, 2):
                    runner.evaluate({"a": np.ones(n), "decision": "inline", "context": f"f{n}"})
                    runner.evaluate({"b": np.ones(2), "decision": "evict"})
        open(output, "w").write("x")
        """,
        scores={"size": size},
    )
    found = list(collect(lambda batch: [1] * len(batch), task, corpus[:1]))
    episodes = {each.decision: each for each in found}
    assert episodes.keys() == {"inline", "evict"} and len(found) == 2
    inline, evict = episodes["inline"], episodes["evict"]
    assert [each.tolist() for each in inline.features["a"]] == [[1], [1, 1]]
    assert inline.features["context"].tolist() == ["f1", "f2"]
    assert evict.features["b"].shape == (2, 2)
    assert inline.reward == evict.reward == 0


def test_a_compilation_that_fails_is_an_episode_without_a_reward(py, corpus):
    task = py(
        """
        advice = ask(2) if os.environ.get("SHMBRIDGE_URL") else [1]
        if "b.txt" in module:
            os.kill(os.getpid(), signal.SIGSEGV)
        open(output, "w").write("x")
        """,
        scores={"size": size},
    )
    episodes = {each.module.name: each for each in collect(by_step, task, corpus, num_workers=3)}
    (failed,) = [each for name, each in episodes.items() if "b" in name]
    assert math.isnan(failed.reward) and failed.outcome.signal == "SIGSEGV" and len(failed) == 2
    assert [each.reward for each in episodes.values() if each is not failed] == [0, 0]


def test_a_module_without_a_baseline_has_no_reward_and_says_why(py, corpus):
    code = """
        if os.environ.get("SHMBRIDGE_URL"):
            ask(1)
            open(output, "w").write("x")
        else:
            sys.exit("not without advice")
    """
    (episode,) = collect(by_step, py(code, scores={"size": size}), corpus[:1])
    assert math.isnan(episode.reward) and episode.outcome.kind == "no score"
    assert "not without advice" in episode.outcome.stderr


def test_a_compilation_that_asks_nothing_is_an_empty_episode(py, corpus):
    (episode,) = collect(by_step, py("open(output, 'w')", scores={"size": size}), corpus[:1])
    assert (len(episode), dict(episode.features), episode.reward) == (0, {}, 0)


def test_several_compilers_run_at_once_and_their_questions_are_batches(py, corpus):
    sizes = []

    def policy(batch):
        sizes.append(len(batch))
        assert len(set(batch.labels)) == len(batch)
        time.sleep(0.02)
        return by_step(batch)

    task = py(
        "advice = ask(40) if os.environ.get('SHMBRIDGE_URL') else [1]\nopen(output, 'w')",
        scores={"size": size},
    )
    assert len(list(collect(policy, task, corpus, num_workers=3))) == 3
    assert max(sizes) >= 2


def test_modules_may_be_endless(py, corpus):
    task = py(SUMS, scores={"size": size})
    found = collect(by_step, task, corpus.sampler(0), num_workers=2)
    assert len(list(itertools.islice(found, 5))) == 5
    found.close()


def test_what_the_policy_raises_ends_the_collection(py, corpus, caplog):
    def policy(batch):
        raise ZeroDivisionError("mine")

    task = py("try: ask(1)\nexcept Exception: pass\nopen(output, 'w')", scores={"size": size})
    with pytest.raises(ZeroDivisionError, match="mine"):
        list(collect(policy, task, corpus))


def test_what_the_reward_raises_ends_the_collection(py, corpus):
    with pytest.raises(KeyError):
        list(collect(by_step, py(SUMS), corpus, reward=lambda outcome, base: base["none"]))


def test_no_workers_are_an_error(py, corpus):
    with pytest.raises(InvalidError, match="num_workers=0"):
        next(collect(by_step, py(SUMS), corpus, num_workers=0))


def test_the_usual_reward_needs_scores(py, corpus):
    with pytest.raises(InvalidError, match="scores"):
        list(collect(by_step, py(SUMS), corpus))


def test_an_episode_is_a_line_when_it_is_printed(py, corpus):
    episode = next(collect(by_step, py(SUMS), corpus, num_workers=1, reward=lambda *_: 1.5))
    assert repr(episode) == f"<Episode of {episode.module.name}: ok, 3 steps, reward 1.5>"


def test_leaving_the_loop_kills_the_compilers(py, corpus, no_leftovers):
    task = py("ask(1)\nif 'c.txt' not in module: time.sleep(1000)\nopen(output, 'w')")
    found = collect(
        by_step, task, [corpus[2], corpus[0], corpus[1]], num_workers=3, reward=lambda *_: 0
    )
    assert next(found).outcome.ok
    found.close()
    until(lambda: not compilers(no_leftovers))


def test_leaving_kills_a_baseline_that_hangs_too(py, corpus, no_leftovers):
    code = (
        "if not os.environ.get('SHMBRIDGE_URL') and 'a.txt' in module: time.sleep(1000)\n"
        "open(output, 'w')"
    )
    found = collect(by_step, py(code, scores={"size": size}), corpus, num_workers=3)
    next(found)
    found.close()
    until(lambda: not compilers(no_leftovers))


def test_ctrl_c_ends_a_collection_and_leaves_nothing(python, tmp_path, no_leftovers):
    (tmp_path / "a.txt").write_text("a")
    program = python(
        """
        import sys
        from shmbridge.training import Corpus
        from shmbridge.training import Task
        from shmbridge.training import collect

        def policy(batch):
            print("asked", flush=True)
            return [1] * len(batch)

        code = "import shmbridge, time; shmbridge.connect().evaluate({'x': 1}); time.sleep(1000)"
        task = Task([sys.executable, "-P", "-c", code, "{module}"])
        list(collect(policy, task, Corpus.from_sources("a.txt"), reward=lambda *_: 0))
        """,
        stderr=-1,
    )
    assert program.line() == "asked"
    program.send_signal(signal.SIGINT)
    program.communicate(timeout=20)
    assert program.returncode == -signal.SIGINT
    until(lambda: not marked(no_leftovers))


# ---- Candidates ----


@pytest.mark.parametrize("workers", [1, 4])
def test_each_candidates_rewards_are_its_own(py, corpus, workers):
    weights = np.array([1, 2, 5])

    def policy(batch, rows):
        assert rows.dtype == np.int64 and len(rows) == len(batch)
        return weights[rows] * batch["x"]

    task = py(SUMS, scores={"size": size})
    found = candidate_rewards(
        policy,
        3,
        task,
        corpus,
        num_workers=workers,
        reward=lambda outcome, _: outcome.scores["size"],
    )
    assert found.tolist() == [[3] * 3, [6] * 3, [15] * 3]


def test_a_candidate_that_breaks_the_compiler_has_no_reward(py, corpus):
    task = py(
        """
        advice = ask(1) if os.environ.get("SHMBRIDGE_URL") else [0]
        sys.exit(advice[0] == 1) if advice[0] else open(output, "w").write("x")
        """,
        scores={"size": size},
    )
    found = candidate_rewards(lambda batch, rows: rows, 2, task, corpus)
    assert found[0].tolist() == [0, 0, 0] and np.isnan(found[1]).all()


def test_improvement_is_the_part_that_is_saved():
    outcome = Outcome("ok", "m", scores={"size": 90.0, "other": 1.0})
    assert relative_reduction(outcome, {"size": 100.0, "other": 7}) == pytest.approx(0.1, abs=1e-3)


# ---- A stock clang ----


C = """
static int helper(int x) { int s = 0; for (int i = 0; i < x; i++) s += i * x ^ s; return s; }
int first(int x) { return helper(x) + helper(x + 1); }
int second(int x) { return helper(x) - helper(x * 2); }
"""


@pytest.mark.filterwarnings("ignore:a compilation took the default advice")
@pytest.mark.parametrize("inline", [0, 1, 0.5])
def test_clangs_inlining_is_a_trajectory(tmp_path, inline):
    if not shutil.which("clang-22"):
        pytest.skip("no clang-22")
    (tmp_path / "m.c").write_text(C)
    task = Task(
        "clang-22 -Oz -c {module} -o {output}", llvm="inline", scores={"size": os.path.getsize}
    )
    corpus = Corpus.from_sources(tmp_path / "m.c")
    (episode,) = collect(lambda batch: [inline] * len(batch), task, corpus)
    took_default = inline == 0.5  # which is no decision
    assert episode.outcome.ok and episode.outcome.defaulted == took_default * len(episode)
    assert episode.decision == "inlining_decision" and len(episode) >= 3
    assert episode.features["caller_users"].shape == (len(episode), 1)
    assert set(episode.advice["advice"].tolist()) == {inline}
    assert math.isnan(episode.reward) == took_default
