"""One compiler at a time as a gymnasium.Env."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from shmbridge._fastpath import OPEN
from shmbridge._host.host import Host
from shmbridge._native import lib
from shmbridge.envs import _spaces
from shmbridge.envs._pool import CompilerPool, CompilerSource
from shmbridge.envs._stepping import Stepping
from shmbridge.errors import InvalidError, raise_status

import gymnasium  # isort: skip # behind _spaces, which says what to install

Turn = tuple[dict[str, Any], float, bool, bool, dict[str, Any]]


class CompilerEnv(gymnasium.Env):  # type: ignore[misc] # Any, for mypy
    """One compiler at a time as a `gymnasium.Env`.

    An episode is a `drive` of the compiler, in C, C++ or Python. For a compiler that only asks for
    advice, such as an unmodified clang, an episode lasts from its first question until it
    disconnects, without rewards. With workers an episode is one compilation in both cases. If the
    compiler reports no reward other than 0, the reward of the `Workers` is given at the last step.

    Observations contain the tensors by name, as copies. `info` contains texts, lists, and

    - "step", the number of actions so far, and "agent", the agent to act, if agents have names;
    - "rewards", each agent's part of the reward, if agents share a runner;
    - "action_mask", the feature of that name;
    - "error", if an episode was truncated because the compiler's environment failed, or the
      compiler died, disconnected, or was silent. The next reset takes the next compiler;
    - with workers, at the end, "module", "kind", "exit", "stderr", "command" and "scores", as in
      the compilation's `Outcome`.

    Args:
        compilers: A `CompilerPool` that several environments share, or a separate host or URL,
            which close() closes.
        actions: The number of actions, or a space. None: any advice, without an action space.
        timeout: Seconds to wait for a request. None: as long as the compiler lives.
        workers: As in `CompilerPool`, if `compilers` is not one.
        options: The host's options, if a URL is given.

    Raises:
        InvalidError: The host has too few channels for the compilers of all its environments.
    """

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(
        self,
        compilers: CompilerPool | Host | str,
        *,
        actions: Any = None,
        timeout: float | None = None,
        workers: CompilerSource | None = None,
        **options: Any,
    ) -> None:
        self.action_space = _spaces.of_actions(actions)
        self._range = _spaces.range_of(self.action_space)
        self._stepping = Stepping(
            compilers, 1, timeout, self._range, workers=workers, options=options
        )
        self.compilers = self._stepping.pool
        self._episode = self._stepping.episodes[0]
        self._sent = False  # an action whose outcome nobody has received
        self._looked: tuple[dict[str, Any], dict[str, Any]] | None = None  # for the spaces
        self._space: Any = None

    # ---- Gymnasium's methods ----

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Waits for a compiler that begins an episode. A running episode is abandoned: its compiler
        gets an error.

        Args:
            seed: With workers: selects the module, and those of later episodes. Else unused, since
                compilers connect by themselves.
            options: With workers: {"module": name} selects the module by its name in the corpus.
                There are no other options.

        Returns:
            The observation and the info.

        Raises:
            InvalidError: An unknown option, or no such module. A running episode continues.
            DeadlineError: No compiler connected within the timeout.
            ClosedError: The host is closed.
        """
        self._stepping.check(options)
        super().reset(seed=seed)
        looked, self._looked = self._looked, None
        if looked is not None and (
            self._stepping.workers is None or (seed is None and not options)
        ):
            return looked
        s = self._stepping
        s.forget()
        self._sent = False
        s.begin([0], [seed], [options])
        s.wait()
        return s.observation(0), s.info(0)

    def step(self, action: Any) -> Turn:
        """Sends the compiler an action and waits for its next request.

        Args:
            action: A value, or a dict of several fields.

        Returns:
            observation, reward, terminated, truncated, info.

        Raises:
            InvalidError, TooLargeError: As `send`.
            ClosedError: The host is closed.
        """
        self.send(action)
        return self.receive()

    def send(self, action: Any) -> None:
        """As `step`, without waiting: its first half.

        Raises:
            InvalidError: There is no episode, or the action is not valid advice or not in the
                action space. The compiler still waits.
            TooLargeError: The compiler also got that error and no longer waits: continue with
                `receive`.
        """
        s = self._stepping
        s.forget()
        direct = s.channels.keys.direct and (self._range or self.action_space is None)
        status = s.core.reply(0, action) if direct else None
        if status is None:
            self._send_slowly(action)
            return
        self._sent, self._looked = True, None
        if status == lib.SHMB_TOO_LARGE or status == lib.SHMB_CLOSED:
            raise_status(
                status, f"the action cannot reach the compiler at {self.compilers.host.url}"
            )

    def _send_slowly(self, action: Any) -> None:
        if self._episode.now.state != OPEN:
            raise InvalidError("no compiler waits for an action: expected reset() first")
        self._check(action)
        try:
            self._episode.send(action)
        finally:
            self._sent, self._looked = self._episode.now.state != OPEN, None

    def receive(self) -> Turn:
        """The second half of `step`, with its results.

        Raises:
            InvalidError: No action is pending.
            ClosedError: The host is closed.
        """
        s = self._stepping
        if not self._sent:
            raise InvalidError("no action is pending: expected send() first")
        s.wait()
        self._sent = False
        return (
            s.observation(0),
            s.rewards.item(),
            s.terminated.item(),
            s.truncated.item(),
            s.info(0),
        )

    def close(self) -> None:
        """Abandons the episode, and closes the host if it belongs to this environment."""
        self._looked = None
        self._stepping.close()

    @property
    def observation_space(self) -> Any:
        """The space of the first observation, which is final. Waits for the first compiler.

        Raises:
            DeadlineError: No compiler connected within the timeout.
        """
        if self._space is None:
            if not self._stepping.features:
                self._looked = self.reset()
            self._space = _spaces.of_observations(self._stepping.features)
        return self._space

    def action_masks(self) -> Any:
        """The last observation's "action_mask" as bool[actions], for sb3-contrib's MaskablePPO."""
        return self._stepping.features["action_mask"][0].astype(bool)

    # ---- Within ----

    def _check(self, action: Any) -> None:
        """An invalid action would silently become the compiler's own heuristic, but be credited to
        the learner."""
        space = self.action_space
        if space is None or (isinstance(action, Mapping) and self._range):
            return
        if self._range is None:
            if not space.contains(action):
                raise InvalidError(f"action {action!r}: expected one of {space}")
            return
        first, count = self._range
        try:
            fits = first <= operator.index(action) < first + count
        except TypeError:
            fits = False
        if not fits:
            raise InvalidError(
                f"action {action!r}: expected an integer from {first} to {first + count - 1}"
            )
