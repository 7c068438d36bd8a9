"""The trainer of environments that are inside compilers (shmbridge.rl, and C and C++): what Gymnasium calls an environment, over a host.

    env = CompilerEnv("shm://unroll", actions=5)
    observation, info = env.reset()                      # waits for a compiler that begins an episode
    while not over:
        observation, reward, terminated, truncated, info = env.step(action)

Several compilers at once: one CompilerEnv for each over one `Compilers`; first env.send(action) to all, then env.receive() from all.
"""

from __future__ import annotations

import contextlib
import operator
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from shmbridge import _inspect
from shmbridge._host import Host
from shmbridge._passing import awaits, channel_of, has_runner
from shmbridge._request import Request
from shmbridge.errors import DeadlineError, InvalidError, ShmbridgeError

SLICE = 0.1  # seconds between looks at whether a compiler still lives
NOBODY = 60.0  # seconds that a reset without a timeout waits while no compiler is connected
# What a request has beside the observation; and "reward.NAME", where several agents ask through one runner.
OWN = ("agent", "reward", "done", "truncated", "step")

LEFT = "the compiler died or left in mid-episode"

Turn = tuple[dict[str, Any], float, bool, bool, dict[str, Any]]


class Compilers:
    """The compilers that connect to a host, for the `CompilerEnv` objects of one thread.

    Args:
        host: A Host, all of whose requests come here, or the URL to make one of. Any URL of a host will do whose SerDes, if it has one,
            keeps the names of advice.
        options: The host's, where a URL is given.
    """

    def __init__(self, host: Host | str, **options: Any) -> None:
        self.host = host if isinstance(host, Host) else Host(host, **options)
        self._held: dict[
            int, Request
        ] = {}  # by channel, which is a compiler's as long as it is connected
        self._owned: set[int] = set()  # channels in an episode of some CompilerEnv

    def close(self) -> None:
        """Closes the host: compilers get ClosedError, and go on as their environments know how."""
        self._held.clear()
        self.host.close()

    def __enter__(self) -> Compilers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _receive(self, seconds: float) -> bool:
        request = self.host.receive(max(0.0, seconds))
        if request is None:
            return False
        channel = channel_of(request)
        if channel in self._owned or "step" not in request:
            self._held[channel] = request
        else:
            request.fail("this trainer has no such episode, or has given it up: begin another")
        return True

    def _begin(self, timeout: float | None) -> tuple[Request, int, int]:
        """The first request of an episode, its channel, and which claim of the channel that is."""
        until = None if timeout is None else time.monotonic() + timeout
        alone = time.monotonic() + NOBODY
        while True:
            for channel in self._held.keys() - self._owned:
                request = self._held.pop(channel)
                if has_runner(request):
                    self._owned.add(channel)
                    return request, channel, _inspect.claim_of(self.host.name, channel)
            left = SLICE if until is None else until - time.monotonic()
            if not self._receive(min(left, SLICE)) and left <= 0:
                raise DeadlineError(
                    f"no compiler began an episode at {self.host.url} within {timeout} s"
                )
            if self.host.runners:
                alone = time.monotonic() + NOBODY
            elif until is None and time.monotonic() > alone:
                raise DeadlineError(
                    f"no compiler has been connected to {self.host.url} for {NOBODY:.0f} s: start one, or say timeout="
                )

    def _next(self, channel: int, claim: int, timeout: float | None, began: bool) -> Request | str:
        """The next request of an episode, or why there is none. began: it has had one that said its step."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            request = self._held.get(channel)
            if request is not None:
                known = began or _inspect.claim_of(self.host.name, channel) != claim
                if "step" in request or not known:
                    return self._held.pop(channel)
                return "the compiler began another episode in the midst of this one"
            left = SLICE if until is None else until - time.monotonic()
            if not self._receive(min(left, SLICE)):
                if claim < 0 or _inspect.claim_of(self.host.name, channel) != claim:
                    return LEFT
                if left <= 0:
                    return f"the compiler asked nothing for {timeout} s"

    def _let_go(self, channel: int) -> None:
        self._owned.discard(channel)
        held = self._held.get(channel)
        if held is not None and "step" in held:
            del self._held[channel]
            _refuse(held)


def _refuse(request: Request) -> None:
    with contextlib.suppress(
        ShmbridgeError
    ):  # the host is closed, or the compiler has gone: it knows
        if awaits(request):
            request.fail("the trainer has given this episode up: begin another")


class CompilerEnv:
    """One compiler at a time as an environment with Gymnasium's methods.

    An episode is one of the compiler's own `drive`, in C, C++ or Python. A compiler that asks for advice alone, as an unmodified clang does,
    has one episode, from its first question until it leaves, without rewards: reward it by what came out. Observations have the tensors by name. Texts and lists are in
    `info`, as are "agent" (whose turn it is), "rewards" (of agents that share a runner, each one's own part of the reward), "step", and "error" where an episode was truncated because the compiler died, left, or was
    silent. The next reset then takes the next compiler.

    Args:
        compilers: A `Compilers` that several share, or a host or URL of its own, which close() closes.
        actions: How many there are, or a space, for `action_space`.
        timeout: Seconds to wait for a request. None: as long as the compiler lives.
        options: The host's, where a URL is given.
    """

    metadata: dict[str, Any] = {"render_modes": []}
    render_mode = None
    spec = None

    def __init__(
        self,
        compilers: Compilers | Host | str,
        *,
        actions: Any = None,
        timeout: float | None = None,
        **options: Any,
    ) -> None:
        self._own = not isinstance(compilers, Compilers)
        self.compilers = (
            compilers if isinstance(compilers, Compilers) else Compilers(compilers, **options)
        )
        self._actions, self._timeout = actions, timeout
        self._request: Request | None = None  # waits for an action
        self._place: tuple[int, int] | None = None  # channel and claim, of the episode under way
        self._observation: dict[str, Any] = {}
        self._first: dict[str, Any] = {}  # like the first observation of all
        self._info: dict[str, Any] = {}
        self._looked = False  # for the spaces: the next reset gives what was seen
        # Does the compiler say its steps, as drive does, or ask for advice alone? The second question tells.
        self._drives: bool | None = None
        self._space: Any = None

    # ---- Gymnasium's methods ----

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Waits for a compiler that begins an episode. An episode under way is given up, which its compiler gets as an error.

        Args:
            seed: Unused: the environment is the compiler's.
            options: Unused.

        Returns:
            The observation and the info.

        Raises:
            DeadlineError: No compiler came within the timeout.
            ClosedError: The host is closed.
        """
        if not self._looked:
            self._give_up()
            self._request, *place = self.compilers._begin(self._timeout)
            self._place, self._drives = (place[0], place[1]), None
            self._read(self._request)
        self._looked = False
        return self._observation, self._info

    def step(self, action: Any) -> Turn:
        """Gives the compiler an action and waits for what comes of it.

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
        """The first half of `step`.

        Args:
            action: A value, or a dict of several fields.

        Raises:
            InvalidError: There is no episode, or this is no advice, or none of the actions. The compiler still waits.
            TooLargeError: The compiler has that error now and does not wait: go on with `receive`.
        """
        request = self._request
        if request is None:
            raise InvalidError("no compiler waits for an action: expected reset() first")
        self._check(action)
        several = dict(action) if isinstance(action, Mapping) else {}
        self._looked = False
        try:
            if "step" in request:  # it knows already that there is a learner
                request.reply(**several) if several else request.reply(action)
            else:
                request.reply(**several, learner=True) if several else request.reply(learner=action)
        finally:
            if not awaits(request):
                self._request = None

    def receive(self) -> Turn:
        """The second half of `step`.

        Returns:
            observation, reward, terminated, truncated, info.

        Raises:
            InvalidError: No action is under way.
            ClosedError: The host is closed.
        """
        if self._place is None or self._request is not None:
            raise InvalidError("no action is under way: expected send() first")
        came = self.compilers._next(*self._place, self._timeout, bool(self._drives))
        if isinstance(came, str):
            self._give_up()
            if (
                came is LEFT and self._drives is False
            ):  # as a compilation ends that asks for advice alone
                return self._observation, 0.0, True, False, {}
            return self._observation, 0.0, False, True, {"error": came}
        self._drives = "step" in came
        reward = float(came["reward"]) if self._drives else 0.0
        done, truncated = (self._drives and bool(came[name]) for name in ("done", "truncated"))
        self._read(came)
        if done or truncated:
            came.reply(0)
            self._give_up()
        else:
            self._request = came
        return self._observation, reward, done, truncated, self._info

    def close(self) -> None:
        """Gives the episode up, and closes the host if that is this environment's own."""
        self._give_up()
        if self._own:
            self.compilers.close()

    @property
    def action_space(self) -> Any:
        """Of `actions`, in Gymnasium's terms."""
        from gymnasium import spaces

        return spaces.Discrete(self._actions) if isinstance(self._actions, int) else self._actions

    @property
    def observation_space(self) -> Any:
        """Of the first observation, for good, in Gymnasium's terms. Waits for a compiler where there was none yet.

        Raises:
            DeadlineError: No compiler came within the timeout.
        """
        from gymnasium import spaces

        if not self._first:
            self.reset()
            self._looked = True
        if self._space is None:
            self._space = spaces.Dict(
                {name: _space(value, spaces) for name, value in self._first.items()}
            )
        return self._space

    @property
    def unwrapped(self) -> CompilerEnv:
        """Itself."""
        return self

    # ---- Within ----

    def _check(self, action: Any) -> None:
        """What is no action would silently become the compiler's own heuristic, and the learner be paid for it."""
        if self._actions is None or isinstance(action, Mapping) and isinstance(self._actions, int):
            return
        if not isinstance(self._actions, int):
            fits, expected = self._actions.contains(action), f"one of {self._actions}"
        else:
            try:
                fits = 0 <= operator.index(action) < self._actions
            except TypeError:
                fits = False
            expected = f"an integer from 0 to {self._actions - 1}"
        if not fits:
            raise InvalidError(f"action {action!r}: expected {expected}")

    def _read(self, request: Request) -> None:
        rewards = {name[7:]: name for name in request if name.startswith("reward.")}
        own = {*OWN, *rewards.values()}
        values = {name: request[name] for name in request if name not in own}
        tensors = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        self._observation = tensors or self._observation  # a report may have none
        self._first = self._first or {name: np.empty_like(each) for name, each in tensors.items()}
        self._info = {name: value for name, value in values.items() if name not in tensors}
        if "agent" in request:
            self._info["agent"] = request["agent"]
        self._info["step"] = int(request["step"]) if "step" in request else 0
        if rewards:
            self._info["rewards"] = {who: float(request[name]) for who, name in rewards.items()}

    def _give_up(self) -> None:
        request, self._request = self._request, None
        if request is not None:
            _refuse(request)
        if self._place is not None:
            self.compilers._let_go(self._place[0])
        self._place, self._looked = None, False


def _space(value: Any, spaces: Any) -> Any:
    if value.dtype == bool:
        return spaces.MultiBinary(value.shape)
    if value.dtype.kind in "iu":
        limits = np.iinfo(value.dtype)
        return spaces.Box(limits.min, limits.max, value.shape, value.dtype)
    return spaces.Box(-np.inf, np.inf, value.shape, value.dtype)


def as_gymnasium(env: CompilerEnv) -> Any:
    """The environment as a gymnasium.Env, as wrappers and libraries of algorithms want one.

    Waits for the first compiler, since its observation tells the space.

    Args:
        env: The environment.

    Raises:
        DeadlineError: No compiler came within its timeout.
        ImportError: Gymnasium is not installed.
    """
    import gymnasium

    def reset(self: Any, *, seed: int | None = None, options: Any = None) -> Any:
        gymnasium.Env.reset(self, seed=seed)
        return env.reset()

    members = {
        "observation_space": env.observation_space,
        "action_space": env.action_space,
        "reset": reset,
        "step": lambda self, action: env.step(action),
        "close": lambda self: env.close(),
    }
    return type("GymnasiumEnv", (gymnasium.Env,), members)()
