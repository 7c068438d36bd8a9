"""The compilers that belong to a trainer: each environment has one after another."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

from shmbridge._bridge import overview
from shmbridge._bridge.segment import bridge_name
from shmbridge.errors import InvalidError
from shmbridge.training._compilation import Compilation, Outcome, OutcomeKind, label_of
from shmbridge.training._corpus import Module, Sampler
from shmbridge.training._task import Compilations, Reward, Task, relative_reduction


class Workers:
    """Compilers that a trainer starts, and that end with it. One thread calls the methods.

    Environments have numbers, and each has one compilation at a time. While that runs, the
    environment's next one may start ahead and wait with its first question: where open() allows it,
    the host has channels for both, and begin() is not told what to compile.

    Args:
        task: What they do.
        sampler: Which modules they compile, and the corpus that seeds and names choose from.
        reward: What a compilation that says no rewards itself is worth, from its outcome and its
            module's baseline. Without scores it is 0.

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
        self._url, self._channels = "", 0  # the host's, if compilers may start ahead
        self._numbers = itertools.count()
        self._samplers: dict[int, Sampler] = {}  # of environments that a seed was given for
        self._running: dict[int, _Worker] = {}  # by environment
        self._ahead: dict[int, _Worker] = {}
        self._owed: dict[int, Module] = {}  # the next ones of environments
        self._labels: dict[str, int] = {}  # the environments of those that run

    def open(self, url: str, ahead: bool = False) -> None:
        """Tells where compilers ask.

        Args:
            url: The host's.
            ahead: May compilers start ahead? Then who receives keeps a first question until begin()
                returns its label.
        """
        bridge = (
            url.startswith("shm://")
            and ahead
            and overview.bridge(bridge_name(url.partition("?")[0]))
        )
        self._url, self._channels = url, len(bridge.channels) if bridge else 0

    def begin(
        self, env: int, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> str:
        """Starts a compiler for an environment, unless one has started ahead. The one that ran
        before is ended.

        Args:
            env: Its number.
            seed: Chooses the module, and those that follow in this environment. None: the next one.
            options: {"module": NAME} chooses the module by its name in the corpus, or {"module":
                Module(...)}.

        Returns:
            The label under which the compiler connects.

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
        self._running[env], self._labels[worker.label] = worker, env
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
        """Would begin() take these options?

        Args:
            options: As `begin`.

        Raises:
            InvalidError: An unknown option, or no such module.
        """
        self._asked(options)

    def ahead(self, label: str) -> bool:
        """Has this compiler started ahead? Then its first question waits until begin() returns its
        label.

        Args:
            label: The compiler's.
        """
        return any(worker.label == label for worker in self._ahead.values())

    def module(self, label: str) -> Module:
        """What a compiler compiles.

        Args:
            label: The compiler's.

        Returns:
            Its module.

        Raises:
            InvalidError: No environment has a compiler of that label.
        """
        return self._worker(label).module

    def outcome(self, label: str, timeout: float | None = None) -> Outcome | None:
        """How a compilation ended, with its scores.

        Args:
            label: Its compiler's.
            timeout: Seconds to wait. None: until it has ended, which the task's limits bound.

        Returns:
            The outcome, or None where it still runs.

        Raises:
            InvalidError: No environment has a compiler of that label.
        """
        worker = self._worker(label)
        outcome = worker.outcome(timeout)
        if outcome is not None and not worker.counted:
            worker.counted = True
            self.counts[outcome.kind] += 1
        return outcome

    def reward(self, label: str) -> float:
        """What a compilation that has ended well was worth; 0 where the task has no scores.

        Args:
            label: Its compiler's.

        Raises:
            InvalidError: No environment has a compiler of that label.
            Exception: There is no baseline, or what the reward has raised.
        """
        worker = self._worker(label)
        if worker.error is not None:
            raise worker.error
        return worker.reward

    def end(self, label: str) -> None:
        """Kills a compiler and all that it started. Nothing happens where it has ended, or is not
        known.

        Args:
            label: The compiler's.
        """
        env = self._labels.pop(label, None)
        if env is not None:
            worker = self._running[env]
            outcome = worker.outcome(0)
            if not worker.counted:
                self.counts[outcome.kind if outcome else "ended"] += 1
            worker.close()

    def close(self) -> None:
        """Ends all. May be called twice."""
        workers = [*(self._running[env] for env in self._labels.values()), *self._ahead.values()]
        for worker in workers:
            worker.stop()
        for label in list(self._labels):
            self.end(label)
        for env in list(self._ahead):
            self._discard(env)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- Within ----

    def _worker(self, label: str) -> _Worker:
        if label not in self._labels:
            raise InvalidError(f"expected the label of a running compiler, found {label!r}")
        return self._running[self._labels[label]]

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
            worker.close()

    def _room(self) -> bool:
        """Has the host a channel for every compiler, and for every one that starts ahead?"""
        return self._channels >= 2 * len(self._labels) * self.task.channels


class _Worker:
    """One compilation, with a thread that waits for its end and scores what came out."""

    def __init__(self, task: Task, module: Module, url: str, label: str, reward: Reward) -> None:
        self.module, self.label, self.counted = module, label, False
        self.reward = 0.0
        self.error: Exception | None = None
        self._compilations = Compilations(task)
        compilation = self._compilations.start(module, url, label)
        self._ended = threading.Event()
        self._outcome: Outcome | None = None
        waiting = (compilation, reward)
        threading.Thread(target=self._wait, args=waiting, name=label, daemon=True).start()

    def _wait(self, compilation: Compilation, reward: Reward) -> None:
        try:
            self._outcome = outcome = compilation.finish()
            if outcome.ok and outcome.scores:
                try:
                    self.reward = reward(outcome, self._compilations.baseline(self.module))
                except Exception as error:  # told to whoever asks for the reward
                    self.error = error
        except BaseException as error:  # a score that exits, or the end of this process
            self._outcome = Outcome(OutcomeKind.NO_SCORE, self.module.name, stderr=repr(error))
        finally:
            self._ended.set()

    def outcome(self, timeout: float | None) -> Outcome | None:
        """As `Workers.outcome`."""
        return self._outcome if self._ended.wait(timeout) else None

    def stop(self) -> None:
        """Tells it to end, without waiting for that."""
        self._compilations.end()

    def close(self) -> None:
        """Ends it."""
        self._compilations.close()
