"""The trainer of environments that are inside compilers (shmbridge.rl, and C and C++): what Gymnasium calls an environment, over a host.

    env = CompilerEnv("shm://unroll", actions=5)
    observation, info = env.reset()                      # waits for a compiler that begins an episode
    while not over:
        observation, reward, terminated, truncated, info = env.step(action)

Several compilers at once: one CompilerEnv for each over one `Compilers`; first env.send(action) to all, then env.receive() from all.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import numpy as np

from shmbridge import segment
from shmbridge._native import ffi, lib
from shmbridge.errors import DeadlineError, InvalidError, ShmbridgeError
from shmbridge.host import Host
from shmbridge.request import Request

SLICE = 0.1  # seconds between looks at whether a compiler still lives
OWN = ("agent", "reward", "done", "truncated", "step")  # what a request has beside the observation

Turn = tuple[dict[str, Any], float, bool, bool, dict[str, Any]]


class Compilers:
    """The compilers that connect to a host, for the CompilerEnvs of one thread. host: a Host, all of whose requests come here, or
    the URL to make one of, with its options. Any URL of a host will do whose SerDes, if it has one, keeps the names of advice."""

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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _receive(self, seconds: float) -> bool:
        request = self.host.receive(max(0.0, seconds))
        if request is None:
            return False
        channel = request._key >> 5 & 0x3FF
        if channel in self._owned or "step" not in request:
            self._held[channel] = request
        else:
            request.fail("this trainer has no such episode, or has given it up: begin another")
        return True

    def _begin(self, timeout: float | None) -> tuple[Request, int, int]:
        """The first request of an episode, its channel, and which claim of the channel that is."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            for channel in self._held.keys() - self._owned:
                request = self._held.pop(channel)
                if lib.shmb_host_message(request._h, request._key) != ffi.NULL:
                    self._owned.add(channel)
                    return request, channel, self._claim(channel)
            left = SLICE if until is None else until - time.monotonic()
            if not self._receive(min(left, SLICE)) and left <= 0:
                raise DeadlineError(
                    f"no compiler began an episode at {self.host.url} within {timeout} s"
                )

    def _next(self, channel: int, claim: int, timeout: float | None) -> Request | str:
        """The next request of an episode, or why there is none."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            request = self._held.get(channel)
            if request is not None:
                if "step" in request:
                    return self._held.pop(channel)
                return "the compiler began another episode in the midst of this one"
            left = SLICE if until is None else until - time.monotonic()
            if not self._receive(min(left, SLICE)):
                if claim < 0 or self._claim(channel) != claim:
                    return "the compiler died or left in mid-episode"
                if left <= 0:
                    return f"the compiler asked nothing for {timeout} s"

    def _claim(self, channel: int) -> int:
        """The number of the channel's claim; -1 where nobody has it."""
        info, channels = ffi.new("shmb_segment_info *"), ffi.new("shmb_channel_info[256]")
        fd = segment._open(segment.SHM / segment.segment_name(self.host.name).lstrip("/"))
        if fd is None:
            return -1
        try:
            found = lib.shmb_inspect(fd, info, channels) and channels[channel].alive
        finally:
            os.close(fd)
        return int(channels[channel].generation) if found else -1

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
        request._answer_error("the trainer has given this episode up: begin another")


class CompilerEnv:
    """One compiler at a time as an environment with Gymnasium's methods: an episode of its own `drive`, in C, C++ or Python.

    compilers: a Compilers that several share, or a host or URL (and the host's options) of its own, which close() closes.
    actions: how many there are, or a space, for `action_space`. timeout: seconds to wait for a request; None: as long as the
    compiler lives.

    Observations have the tensors by name; texts and lists are in `info`, as are "agent" (whose turn it is), "step", and
    "error" where an episode was truncated because the compiler died, left, or was silent: the next reset takes the next compiler.
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
        self._info: dict[str, Any] = {}
        self._looked = False  # for the spaces: the next reset gives what was seen

    # ---- Gymnasium's methods ----

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Waits for a compiler that begins an episode: (observation, info). An episode under way is given up, which its compiler gets as
        an error. seed, options: unused; the environment is the compiler's. Errors: DeadlineError, ClosedError."""
        if not self._looked:
            self._give_up()
            self._request, *place = self.compilers._begin(self._timeout)
            self._place = (place[0], place[1])
            self._read(self._request)
        self._looked = False
        return self._observation, self._info

    def step(self, action: Any) -> Turn:
        """Gives the compiler an action (or a dict of several fields) and waits for what comes of it: (observation, reward,
        terminated, truncated, info). Errors: send's, ClosedError."""
        self.send(action)
        return self.receive()

    def send(self, action: Any) -> None:
        """The first half of step. Errors: InvalidError (no episode, or no advice: the compiler still waits), TooLargeError (it has
        that error now, and does not wait: receive)."""
        request = self._request
        if request is None:
            raise InvalidError("no compiler waits for an action: expected reset() first")
        several = dict(action) if isinstance(action, Mapping) else {}
        self._looked = False
        try:
            if "step" in request:  # it knows already that there is a learner
                request.reply(**several) if several else request.reply(action)
            else:
                request.reply(**several, learner=True) if several else request.reply(learner=action)
        finally:
            if not request._open:
                self._request = None

    def receive(self) -> Turn:
        """The second half of step."""
        if self._place is None or self._request is not None:
            raise InvalidError("no action is under way: expected send() first")
        came = self.compilers._next(*self._place, self._timeout)
        if isinstance(came, str):
            self._give_up()
            return self._observation, 0.0, False, True, {"error": came}
        reward, done, truncated = float(came["reward"]), bool(came["done"]), bool(came["truncated"])
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
        """Of the first observation, in Gymnasium's terms; waits for a compiler where there was none yet. Errors: DeadlineError."""
        from gymnasium import spaces

        if not self._observation:
            self.reset()
            self._looked = True
        return spaces.Dict(
            {name: _space(value, spaces) for name, value in self._observation.items()}
        )

    @property
    def unwrapped(self) -> CompilerEnv:
        """Itself."""
        return self

    # ---- Within ----

    def _read(self, request: Request) -> None:
        values = {name: request[name] for name in request if name not in OWN}
        tensors = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        self._observation = tensors or self._observation  # a report may have none
        self._info = {name: value for name, value in values.items() if name not in tensors}
        if "agent" in request:
            self._info["agent"] = request["agent"]
        self._info["step"] = int(request["step"]) if "step" in request else 0

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
    """The environment as a gymnasium.Env, as wrappers and libraries of algorithms want one. Waits for the first compiler, since
    its observation says the space. Errors: DeadlineError, ImportError."""
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
