"""Whole compilations by a policy, with one reward at the end of each: for policy gradients and
evolution strategies.

One host in this process answers n compilers at once, in batches.
"""

from __future__ import annotations

import copy
import itertools
import os
import secrets
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shmbridge import Batch, Host, Ragged
from shmbridge._host.batch import rows_of
from shmbridge.errors import InvalidError, ShmbridgeError
from shmbridge.training._compilation import Outcome, OutcomeKind, label_of, warn_of_threads
from shmbridge.training._corpus import Module
from shmbridge.training._progress import Progress
from shmbridge.training._task import Compilations, Reward, Task, relative_reduction

Array: TypeAlias = npt.NDArray[Any]
Policy: TypeAlias = Callable[[Batch], Any]

MAX_CHANNELS = 256  # of a `Host`


@dataclass(frozen=True)
class Episode:
    """A compilation: its questions and advice, in order, and its reward.

    Tensors are stacked: [steps, ...]. Texts, lists, and tensors whose shape changes from step to
    step are object[steps]. If a compilation asks several kinds of questions (LLVM's "inline" and
    "evict"), each kind has its own episode.

    Attributes:
        module: The compiled module.
        decision: LLVM's name of the decision, such as "inlining_decision". "": unknown.
        features: The features, by name.
        advice: The policy's advice, by name.
        extras: Further results of the policy, by name, such as log-probabilities.
        reward: The reward of the whole compilation. NaN if it failed, or used a default advice
            (`outcome.defaulted`).
        outcome: How the compilation ended.
    """

    module: Module
    decision: str
    features: Mapping[str, Array]
    advice: Mapping[str, Array]
    extras: Mapping[str, Array]
    reward: float
    outcome: Outcome

    def __len__(self) -> int:
        return len(next(iter(self.advice.values()), ()))

    def __repr__(self) -> str:
        how = f"{self.outcome.kind}, {len(self)} steps, reward {self.reward:g}"
        return f"<Episode of {self.module.name}: {how}>"


def collect(
    policy: Policy,
    task: Task,
    modules: Iterable[Module],
    *,
    num_workers: int | None = None,
    reward: Reward = relative_reduction,
    progress: Progress | None = None,
    **options: Any,
) -> Iterator[Episode]:
    """Compiles modules with a policy, several at once, and yields each compilation when it has
    ended.

    A compilation that fails also has an episode: its reward is NaN, and its `outcome` has the
    reason. When the iterator is closed or garbage collected, or by Ctrl-C, running compilers are
    killed.

    Args:
        policy: Receives a `Batch` of requests and returns advice, a row for each, as for
            `Host.serve`. It can also return a pair (advice, extras): extras are rows by name that
            are stored in the episode and not sent to the compiler.
        task: The task. Without scores there are no baselines, and `reward` must not need them.
        modules: The modules to compile. They may be endless, like a sampler; then so is the
            iterator.
        num_workers: How many compilers run at once. None: one for each CPU of this process.
        reward: Computes the reward from an outcome and the baseline's scores.
        progress: A `Progress` that counts each compilation.
        options: The host's options, such as request_bytes.

    Yields:
        Episodes, in the order in which compilations end.

    Raises:
        InvalidError: An option is invalid.
        Exception: An exception of the policy or the reward.
    """

    collection = Collection(
        lambda batch, _: policy(batch), task, num_workers, reward, progress, keep=True, **options
    )
    with closing(collection.run((module, 0) for module in modules)) as ended:
        for _, compiled in ended:
            yield from compiled.episodes()


def candidate_rewards(
    policy: Callable[[Batch, npt.NDArray[np.int64]], Any],
    candidates: int,
    task: Task,
    modules: Sequence[Module],
    **options: Any,
) -> npt.NDArray[np.float64]:
    """Compiles each module with each of several candidates for a policy's weights, all served by
    one host, for evolution strategies::

        weights = center + sigma * noise        # [candidates, size]

        def policy(batch, rows):
            return np.einsum("bf,bf->b", batch["features"], weights[rows]) > 0

        rewards = candidate_rewards(policy, len(weights), task, modules).mean(axis=1)

    Args:
        policy: Receives a `Batch` and int64[len(batch)], the candidate of each of its requests.
            Returns advice, a row for each request.
        candidates: The number of candidates.
        modules: The modules to compile.
        task: As in `collect`.
        options: num_workers, reward, progress and the host's options, as in `collect`.

    Returns:
        The rewards, float64[candidates, len(modules)]. NaN as in `Episode.reward`.

    Raises:
        InvalidError: An option is invalid.
        Exception: An exception of the policy or the reward.
    """
    rewards = np.full((candidates, len(modules)), np.nan)
    jobs = list(itertools.product(range(len(modules)), range(candidates)))  # a module's in a row
    collection = Collection(policy, task, **options)
    with closing(collection.run((modules[column], row) for column, row in jobs)) as ended:
        for number, compiled in ended:
            column, row = jobs[number]
            rewards[row, column] = compiled.reward
    return rewards


class _Compiled:
    """A compilation's steps while it runs, and its end."""

    def __init__(self, module: Module, row: int) -> None:
        self.module, self.row = module, row
        self.reward = float("nan")
        self.outcome = Outcome(OutcomeKind.NOT_STARTED, module.name)
        # By decision and names of features: arrays of a batch, and which row of it.
        self.steps: dict[Any, list[tuple[dict[str, dict[str, Any]], int]]] = {}

    def episodes(self) -> Iterator[Episode]:
        """One for each kind of question; one without steps where nothing was asked."""
        for (decision, *_), steps in (self.steps or {("",): []}).items():
            columns: dict[str, dict[str, Array]] = {"features": {}, "advice": {}, "extras": {}}
            for kind, names in (steps[0][0] if steps else {}).items():
                for name in names:
                    columns[kind][name] = _stacked([step[kind][name][i] for step, i in steps])
            yield Episode(
                self.module, decision, **columns, reward=self.reward, outcome=self.outcome
            )


class Collection:
    """A host, its policy in a thread, and the threads that wait for compilers. keep: the steps of
    each compilation. The other arguments: as `collect`'s."""

    def __init__(
        self,
        policy: Callable[[Batch, Array], Any],
        task: Task,
        num_workers: int | None = None,
        reward: Reward = relative_reduction,
        progress: Progress | None = None,
        keep: bool = False,
        **options: Any,
    ) -> None:
        self._workers = len(os.sched_getaffinity(0)) if num_workers is None else num_workers
        if self._workers < 1:
            raise InvalidError(f"num_workers={num_workers}: expected 1 or more")
        warn_of_threads(self._workers)
        self._policy, self._reward, self._keep, self._options = policy, reward, keep, options
        self._task, self._progress = task, progress
        self._error: BaseException | None = None  # the policy's
        self._by_label: dict[str, _Compiled] = {}
        self._compilations = Compilations(task)
        self._lock = threading.Lock()

    def run(
        self, jobs: Iterable[tuple[Module, int]]
    ) -> Generator[tuple[int, _Compiled], None, None]:
        """The number of each job, and its compilation, when that has ended."""
        left, waiting = enumerate(jobs), dict[Future[_Compiled], int]()
        questions = self._workers * self._task.channels
        # Twice: a compiler may come before the one whose place it takes has left.
        options = {"channels": min(MAX_CHANNELS, 2 * questions), **self._options}
        with (
            ThreadPoolExecutor(self._workers, "compilations") as pool,
            Host(f"collect-{os.getpid()}-{secrets.token_hex(4)}", **options) as host,
            host.start(self._answer, max_batch=max(2, questions)),
            ExitStack() as stack,
        ):
            stack.callback(self._compilations.end)
            while True:
                for number, job in itertools.islice(left, 2 * self._workers - len(waiting)):
                    waiting[pool.submit(self._compile, number, *job, host.url)] = number
                if not waiting:
                    return
                for done in wait(waiting, return_when=FIRST_COMPLETED).done:
                    number, compiled = waiting.pop(done), done.result()
                    if self._error is not None:
                        raise self._error
                    if self._progress is not None:
                        self._progress.add(compiled.reward, compiled.outcome.kind)
                    yield number, compiled

    # ---- In the pool's threads ----

    def _compile(self, number: int, module: Module, row: int, url: str) -> _Compiled:
        compiled, label = _Compiled(module, row), label_of(module, number)
        with self._lock:
            self._by_label[label] = compiled
        try:
            compiled.outcome = self._compilations.run(module, url, label)
            if compiled.outcome.ok and not compiled.outcome.defaulted:
                self._score(compiled)
        finally:
            with self._lock:
                del self._by_label[label]
        return compiled

    def _score(self, compiled: _Compiled) -> None:
        try:
            baseline = self._compilations.baseline(compiled.module) if self._task.scores else {}
        except (ShmbridgeError, OSError) as error:
            why = f"{compiled.outcome.stderr}\n{error}".lstrip()
            compiled.outcome = replace(compiled.outcome, kind=OutcomeKind.NO_SCORE, stderr=why)
            return
        compiled.reward = float(self._reward(compiled.outcome, baseline))

    # ---- In the host's thread ----

    def _answer(self, batch: Batch) -> Any:
        try:
            return self._advise(batch)
        except BaseException as error:
            self._error = self._error or error
            raise

    def _advise(self, batch: Batch) -> dict[str, Any]:
        with self._lock:
            compiled = [self._by_label.get(label) for label in batch.labels]
        rows = np.array([each.row if each else 0 for each in compiled])
        # Copies, since the policy may change what it gets.
        features = {name: copy.copy(each) for name, each in batch.items()} if self._keep else {}
        answer = self._policy(batch, rows)
        pair = isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], Mapping)
        advice, extras = answer if pair else (answer, {})
        advice = dict(advice) if isinstance(advice, Mapping) else {"advice": advice}
        if self._keep:
            values = {
                "features": features,
                "advice": _rows(advice, batch),
                "extras": _rows(extras, batch),
            }
            decisions = features.get("decision", [""] * len(batch))
            for i, each in enumerate(compiled):
                if each is not None:
                    each.steps.setdefault((decisions[i], *features), []).append((values, i))
        return advice


def _rows(values: Mapping[str, Any], batch: Batch) -> dict[str, Any]:
    """Copies, since the policy may use its arrays again."""
    rows = {name: rows_of(name, value, len(batch)) for name, value in values.items()}
    return {name: copy.copy(value) for name, value in rows.items()}


def _stacked(values: Sequence[Any]) -> Array:
    """One array of all, or of objects where they are no tensors of one shape."""
    if not any(isinstance(value, (str, Ragged)) for value in values):
        with suppress(ValueError):  # rows of unequal length
            arrays = [np.asarray(value) for value in values]
            if len({array.shape for array in arrays}) == 1 and arrays[0].dtype.kind not in "OSU":
                return np.stack(arrays)
    stacked = np.empty(len(values), object)
    for i, value in enumerate(values):
        stacked[i] = value
    return stacked
