"""Several compilers as a gymnasium.vector.VectorEnv."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shmbridge import Host
from shmbridge._episodes.pool import CompilerPool
from shmbridge._episodes.stepping import Stepping
from shmbridge.envs import _spaces
from shmbridge.errors import InvalidError
from shmbridge.training import Workers

from gymnasium.vector import AutoresetMode, VectorEnv  # isort: skip # behind _spaces, as there
from gymnasium.vector.utils import batch_space  # isort: skip

Array = np.ndarray[Any, Any]
Turns = tuple[dict[str, Array], Array, Array, Array, dict[str, Any]]


class CompilerVectorEnv(VectorEnv):  # type: ignore[misc] # Any, for mypy
    """Several compilers at once as a `gymnasium.vector.VectorEnv`. Episodes and infos are as in
    `CompilerEnv`.

    Observations are the tensors by name with a row for each environment: shape [n, ...]. A compiler
    whose observations differ from the first one's is refused. Each step returns new arrays.

    Args:
        num_envs: How many compilers are stepped at once.
        autoreset_mode: When the next episode begins after one has ended: at the next step, in the
            same step (`infos["final_obs"]`, `infos["final_info"]`), or only by
            reset(options={"reset_mask": bool[n]}).
        compilers, actions, timeout, workers, options: As in `CompilerEnv`.

    Raises:
        InvalidError: The host has too few channels for the compilers of all its environments.
    """

    def __init__(
        self,
        compilers: CompilerPool | Host | str,
        num_envs: int,
        *,
        actions: Any = None,
        timeout: float | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        workers: Workers | None = None,
        **options: Any,
    ) -> None:
        self.num_envs = num_envs
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {"autoreset_mode": self.autoreset_mode, "render_modes": []}
        self.single_action_space = _spaces.of_actions(actions)
        self.action_space = (
            None if actions is None else batch_space(self.single_action_space, num_envs)
        )
        range_ = _spaces.range_of(self.single_action_space)
        self._stepping = Stepping(
            compilers, num_envs, timeout, range_, workers=workers, options=options
        )
        self.compilers = self._stepping.pool
        self._over = np.zeros(num_envs, bool)  # waits for its next episode
        self._any_over = self._sent = False
        self._ends: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}  # of the last step
        self._all = np.ones(num_envs, bool)
        self._looked: tuple[dict[str, Array], dict[str, Any]] | None = None
        self._spaces: Any = None

    # ---- Gymnasium's methods ----

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """Waits until a compiler begins an episode in each environment. Running episodes are
        abandoned.

        Args:
            seed: With workers: environment i gets the modules of a `CompilerEnv` that is reset with
                seed + i, or with seed[i]. Else unused.
            options: "reset_mask", bool[n]: resets only these environments. With workers {"module":
                name} selects the module.

        Returns:
            The observations and the infos.

        Raises:
            InvalidError: There are not n seeds, the mask is not bool[n] with at least one True, an
                unknown option, or no such module. Running episodes continue.
            DeadlineError: Not enough compilers connected within the timeout.
            ClosedError: The host is closed.
        """
        n, chosen = self.num_envs, dict(options or {})
        super().reset(seed=seed if isinstance(seed, int) else None)
        mask = self._mask(chosen.pop("reset_mask", self._all))
        seeds = [seed + i for i in range(n)] if isinstance(seed, int) else list(seed or [None] * n)
        if len(seeds) != n:
            raise InvalidError(f"expected {n} seeds, found {len(seeds)}")
        return self._begin(mask, seeds, [chosen] * n)

    def _mask(self, given: Any) -> Array:
        mask = np.asarray(given)
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_ or not mask.any():
            raise InvalidError(
                f"reset_mask: expected bool[{self.num_envs}] with a True at least, found {given!r}"
            )
        return mask

    def _begin(
        self, mask: Array, seeds: Sequence[int | None], options: Sequence[Mapping[str, Any]]
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """Begins the episodes of the mask's environments, each with its own seed and options."""
        s = self._stepping
        for each in options:  # before an episode is given up
            s.check(each)
        looked, self._looked = self._looked, None
        fresh = s.workers is not None and (any(options) or seeds != [None] * len(seeds))
        if looked is not None and mask.all() and not fresh:
            return looked
        rows = [int(row) for row in np.flatnonzero(mask)]
        s.forget()
        self._sent = False
        s.begin(rows, [seeds[row] for row in rows], [options[row] or None for row in rows])
        s.wait()
        self._over[mask] = False
        self._any_over = bool(self._over.any())
        return self._observations(), self._infos(mask)

    def step(self, actions: Any) -> Turns:
        """Sends each compiler its action and waits for the next request of each.

        Args:
            actions: One for each environment: an array of n rows, or a dict of these. It is ignored
                where an episode is over.

        Returns:
            observations, rewards float64[n], terminations bool[n], truncations bool[n], infos.

        Raises:
            InvalidError, TypeError, DeadlineError, ClosedError: As `send` and `receive`.
        """
        self.send(actions)
        return self.receive()

    def send(self, actions: Any) -> None:
        """As `step`, without waiting: its first half. A reply that fails ends that episode.

        Raises:
            InvalidError, TypeError: There is no episode, an action is invalid, or there are not n
                actions. The compilers still wait.
        """
        s = self._stepping
        rows: list[int] = []
        if self._any_over:
            if self.autoreset_mode == AutoresetMode.DISABLED:
                raise InvalidError(
                    f"the episodes of environments {np.flatnonzero(self._over)} are over: expected "
                    "reset(), or reset(options={'reset_mask': ...}) of these"
                )
            rows = [int(row) for row in np.flatnonzero(self._over)]
        s.send_all(actions)
        if not s.core.under_way and not rows:
            raise InvalidError("no compiler waits for an action: expected reset() first")
        self._looked, self._sent = None, True
        self._ends.clear()
        s.forget()
        if rows:
            s.begin(rows)

    def receive(self) -> Turns:
        """The second half of `step`, with its results.

        Raises:
            InvalidError: No action is pending.
            DeadlineError: Not enough compilers connected within the timeout, for the next episodes.
            ClosedError: The host is closed.
        """
        s = self._stepping
        self._wait()
        if self._any_over and self.autoreset_mode == AutoresetMode.SAME_STEP:
            return self._next_episodes()
        ends = s.terminated.copy(), s.truncated.copy()
        return self._observations(), s.rewards.copy(), *ends, self._infos()

    def close_extras(self) -> None:
        """Abandons the episodes, and closes the host if it belongs to this environment."""
        self._stepping.close()

    @property
    def single_observation_space(self) -> Any:
        """The space of the first observation, which is final. Waits for the first compilers.

        Raises:
            DeadlineError: Not enough compilers connected within the timeout.
        """
        return self._observation_spaces()[0]

    @property
    def observation_space(self) -> Any:
        """The same with a row for each environment."""
        return self._observation_spaces()[1]

    # ---- Within ----

    def _wait(self) -> None:
        """For the results of what was sent."""
        s = self._stepping
        if not self._sent:
            raise InvalidError("no action is pending: expected send() first")
        s.wait()
        self._sent = False
        if s.core.ended or self._any_over:
            self._any_over = s.core.ended > 0
            np.logical_or(s.terminated, s.truncated, out=self._over)

    def _observation_spaces(self) -> Any:
        if self._spaces is None:
            if not self._stepping.features:
                self._looked = self.reset()
            one = _spaces.of_observations(self._stepping.features)
            self._spaces = one, batch_space(one, self.num_envs)
        return self._spaces

    def _next_episodes(self) -> Turns:
        """The ends of some episodes, and the beginnings of the next ones."""
        s = self._stepping
        rewards, ends = s.rewards.copy(), (s.terminated.copy(), s.truncated.copy())
        over = np.logical_or(*ends)
        infos: dict[str, Any] = {}
        rows = [int(row) for row in np.flatnonzero(over)]
        self._ends = {row: (s.observation(row), s.info(row)) for row in rows}
        for row, (observation, info) in self._ends.items():
            self._add_info(infos, {"final_obs": observation, "final_info": info}, row)
        s.forget()
        s.begin(rows)
        s.wait()
        self._any_over = False
        return self._observations(), rewards, *ends, {**self._infos(), **infos}

    def _observations(self) -> dict[str, Array]:
        return {name: each.copy() for name, each in self._stepping.features.items()}

    def _infos(self, mask: Array | None = None) -> dict[str, Any]:
        s = self._stepping
        told = (self._all if mask is None else mask).copy()
        infos = {"step": s.steps.copy(), "_step": told}
        if s.names:
            names = np.array([*map(s.name_of, range(len(s.names))), None])
            infos["agent"], infos["_agent"] = names[s.agents], (s.agents >= 0) & told
        if "action_mask" in s.features:
            infos["action_mask"], infos["_action_mask"] = s.features["action_mask"].copy(), told
        for row, info in s.infos.items() if s.infos else ():
            self._add_info(infos, info, row)
        for row, info in s.outcomes.items() if s.outcomes else ():
            told[row] = False
            self._add_info(infos, info, row)
        return infos
