"""The compilers of a trainer: each environment has one after another."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

from shmbridge.errors import Closing, InvalidError
from shmbridge.training._compilation import (
    Compilation,
    Outcome,
    OutcomeKind,
    label_of,
    warn_of_threads,
)
from shmbridge.training._corpus import Module, Sampler
from shmbridge.training._task import Compilations, Reward, Task, relative_reduction


class Workers(Closing):
    """Compilers that a trainer starts, and that end with it. Call its methods from one thread.

    Environments have numbers, and each has one compilation at a time. Meanwhile, the environment's
    next compiler may start early and wait with its first question, if open() allows it, the host
    has channels for both, and begin() does not select the module.

    Other methods take the label that begin() returned; InvalidError: no environment has a compiler
    of that label.

    Args:
        task: The task of the compilers.
        sampler: Selects their modules; seeds and names select from its corpus.
        reward: The reward of a compilation that reports none, from its outcome and its module's
            baseline. Without scores it is 0.

    Attributes:
        counts: How many compilations ended with each kind of outcome; those that the trainer ended
            are "ended".
    """

    def __init__(
        self, task: Task, sampler: Sampler, *, reward: Reward = relative_reduction
    ) -> None:
        if not isinstance(sampler, Sampler):
            raise InvalidError(f"expected corpus.sampler(seed), found {sampler!r}")
        self.task, self.counts = task, Counter[str]()
        self._reward = reward
        self._sampler = sampler
        self._url, self._channels = "", 0  # the host's
        self._numbers = itertools.count()
        self._samplers: dict[int, Sampler] = {}  # of environments that a seed was given for
        self._running: dict[int, _Worker] = {}  # by environment
        self._ahead: dict[int, _Worker] = {}
        self._owed: dict[int, Module] = {}  # the next ones of environments
        self._labels: dict[str, _Worker] = {}  # of those, the ones that nobody has ended

    def open(self, url: str, channels: int = 0) -> None:
        """Sets the URL that compilers ask.

        Args:
            url: The host's URL.
            channels: How many channels the host has, if compilers may start early. Then the
                receiver keeps a first question until begin() returns its label.
        """
        self._url, self._channels = url, channels

    def begin(
        self, env: int, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> str:
        """Starts a compiler for an environment, or uses one that has started early. The
        environment's previous compiler is ended.

        Args:
            env: The environment's number.
            seed: Selects the module, and later ones in this environment. None: the next one.
            options: {"module": NAME} selects the module by its name in the corpus, or {"module":
                Module(...)}.

        Returns:
            The label with which the compiler connects.

        Raises:
            InvalidError: An unknown option, no such module, or open() was not called.
        """
        if not self._url:
            raise InvalidError("expected open(url) before begin()")
        asked = self._asked(options)
        again = env in self._running
        if again:
            self.end(self._running[env].label)
        if seed is not None or asked is not None:
            self._discard(env)
        if seed is not None:
            self._samplers[env] = self._sampler.corpus.sampler(seed)
            self._owed.pop(env, None)
        worker = self._ahead.pop(env, None) or self._start(asked or self._next(env))
        self._running[env] = self._labels[worker.label] = worker
        if not again:
            warn_of_threads(len(self._running))
        if not self._room():
            for other in list(self._ahead):
                self._discard(other)
        elif again and seed is None and asked is None:
            self._ahead[env] = self._start(self._next(env))
        return worker.label

    @property
    def channels(self) -> int:
        """How many channels of a host one compilation takes at once."""
        return self.task.channels

    def check(self, options: Mapping[str, Any] | None) -> None:
        """As `begin`, but only checks the options."""
        self._asked(options)

    def ahead(self, label: str) -> bool:
        """Whether the compiler of any label has started early."""
        return any(worker.label == label for worker in self._ahead.values())

    def module(self, label: str) -> Module:
        """The module of a compiler."""
        return self._worker(label).module

    def outcome(self, label: str, timeout: float | None = None) -> Outcome | None:
        """How a compilation ended, with its scores; None if it still runs.

        Args:
            timeout: Seconds to wait. None: until it ends, within the task's limits.
        """
        worker = self._worker(label)
        outcome = worker.outcome(timeout)
        if outcome is not None and not worker.counted:
            worker.counted = True
            self.counts[outcome.kind] += 1
        return outcome

    def reward(self, label: str) -> float:
        """The reward of a compilation that ended and did not fail; 0 if the task has no scores.

        Raises:
            Exception: There is no baseline, or an exception of the reward.
        """
        worker = self._worker(label)
        if worker.error is not None:
            raise worker.error
        return worker.reward

    def end(self, label: str) -> None:
        """Kills a compiler and all its processes. Does nothing if it has ended or is unknown."""
        worker = self._labels.pop(label, None)
        if worker is not None:
            outcome = worker.outcome(0)
            if not worker.counted:
                self.counts[outcome.kind if outcome else "ended"] += 1
            worker.compilations.close()

    def close(self) -> None:
        """Ends all compilers. You may call it twice."""
        for worker in (*self._labels.values(), *self._ahead.values()):
            worker.compilations.end()  # all of them, before the first is waited for
        for label in list(self._labels):
            self.end(label)
        for env in list(self._ahead):
            self._discard(env)

    # ---- Within ----

    def _worker(self, label: str) -> _Worker:
        if label not in self._labels:
            raise InvalidError(f"expected the label of a running compiler, found {label!r}")
        return self._labels[label]

    def _asked(self, options: Mapping[str, Any] | None) -> Module | None:
        unknown = [name for name in options or {} if name != "module"]
        if unknown:
            raise InvalidError(
                f'reset(options=...) has {", ".join(map(repr, unknown))}: expected "module" alone'
            )
        asked = (options or {}).get("module")
        known = asked is None or isinstance(asked, Module)
        found: Module | None = asked if known else self._sampler.corpus[str(asked)]
        return found

    def _next(self, env: int) -> Module:
        return self._owed.pop(env, None) or next(self._samplers.get(env, self._sampler))

    def _start(self, module: Module) -> _Worker:
        label = label_of(module, next(self._numbers))
        return _Worker(self.task, module, self._url, label, self._reward)

    def _discard(self, env: int) -> None:
        """What started ahead makes room; its module is the environment's next all the same."""
        worker = self._ahead.pop(env, None)
        if worker is not None:
            self._owed[env] = worker.module
            worker.compilations.close()

    def _room(self) -> bool:
        """Has the host a channel for every compiler, and for every one that starts ahead?"""
        return self._channels >= 2 * len(self._labels) * self.task.channels


class _Worker:
    """One compilation, with a thread that waits for its end and scores what came out."""

    def __init__(self, task: Task, module: Module, url: str, label: str, reward: Reward) -> None:
        self.module, self.label, self.counted = module, label, False
        self.reward = 0.0
        self.error: Exception | None = None
        self.compilations = Compilations(task)
        compilation = self.compilations.start(module, url, label)
        self._ended = threading.Event()
        self._outcome: Outcome | None = None
        waiting = (compilation, reward)
        threading.Thread(target=self._wait, args=waiting, name=label, daemon=True).start()

    def _wait(self, compilation: Compilation, reward: Reward) -> None:
        try:
            outcome = self.compilations.blamed(compilation, compilation.finish())
            self._outcome = outcome
            if outcome.ok and outcome.scores:
                try:
                    self.reward = reward(outcome, self.compilations.baseline(self.module))
                except Exception as error:  # for `reward`; a compiler that reports one needs none
                    self.error = error
        except BaseException as error:  # a score that exits, or the end of this process
            self._outcome = Outcome(OutcomeKind.NO_SCORE, self.module.name, stderr=repr(error))
        finally:
            self._ended.set()

    def outcome(self, timeout: float | None) -> Outcome | None:
        return self._outcome if self._ended.wait(timeout) else None
