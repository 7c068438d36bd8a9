"""LLVM's interactive channel: "llvm:///PATH", for stock opt, llc, clang and rustc."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from shmbridge._llvm import compilers
from shmbridge._native import ffi, lib
from shmbridge._urls.options import split
from shmbridge.errors import InvalidError
from shmbridge.hosts import PipeBackedHost, PipeBackedRequest, PipePair

SLICE_NS = 50_000_000
LINGER = 60.0  # seconds


class LlvmRequest(PipeBackedRequest):
    """One decision's features, and "decision" and "context" as strings. A reply is rounded to
    float32 where it is no integer."""

    __slots__ = ()

    def reply(self, *args: Any, **named: Any) -> bool:
        rounded = {name: compilers.rounded(value) for name, value in named.items()}
        return super().reply(*map(compilers.rounded, args), **rounded)


class LlvmHost(PipeBackedHost):
    """A host for an unmodified LLVM compiler, over named pipes. Each pair serves one compiler at a
    time.

    The pipes are PATH.in and PATH.out. With "llvm:///PATH?decisions=inline,evict,priority" each of
    these decisions has a pair: PATH.inline.in and so on. `flags` returns the compiler's arguments.

    Args:
        url: "llvm:///PATH", with or without decisions=.
        defaults: The advice to use if the model gives none, by decision, such as {"inline": 0}.
        options: As in `Host`.

    Attributes:
        decisions: The URL's decisions, with a pair each. Empty: one pair for any decision.
    """

    _request_type = LlvmRequest

    def __init__(
        self,
        url: str,
        *,
        defaults: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self._path, chosen = split(url.partition("://")[2])
        names = chosen.pop("decisions", "")
        self.decisions = compilers.asked_of("clang", names.split(",")) if names else []
        if chosen or not self._path or "\0" in self._path:
            raise InvalidError(
                f"{url!r}: expected llvm:///PATH, with no option but "
                "decisions=inline,evict,priority"
            )
        advice = {decision: str(value) for decision, value in (defaults or {}).items()}
        for decision, text in advice.items():
            compilers.check_default(decision, text)
            if decision not in self.decisions:
                raise InvalidError(
                    f"{url!r}: a default for {decision} needs ?decisions={decision}, which tells "
                    "its pipes apart"
                )
        lines = [
            PipePair(self._pair(decision), "llvm", advice.get(decision, ""))
            for decision in self.decisions
        ]
        super().__init__(url, lines or [PipePair(self._path, "llvm", "")], **options)

    def _pair(self, decision: str) -> str:
        return f"{self._path}.{decision}" if self.decisions else self._path

    def flags(self, compiler: str, *decisions: str, include_default: bool = False) -> list[str]:
        """Returns the arguments that make a compiler ask this host: flags("clang-22").

        Args:
            compiler: Its name or path.
            decisions: The decisions to ask about. None given: those of the URL. Give one if the URL
                has none.
            include_default: Add the inliner's own decision to the features (LLVM 22).

        Raises:
            InvalidError: The compiler is not known, or does not make these decisions.
        """
        kind = compilers.kind_of(compiler)
        ours = [each for each in self.decisions if each in compilers.MAKES[kind]]
        made = compilers.asked_of(kind, decisions or ours or self.decisions)
        missing = [each for each in made if each not in self.decisions]
        # A URL without decisions has one pair of pipes, for any of them.
        fits = not missing if self.decisions else len(made) == 1
        if not fits:
            raise InvalidError(
                f"{self.url} has pipes for {', '.join(self.decisions) or 'one decision'}, not for "
                f"{', '.join(missing)}"
            )
        return compilers.flags(
            kind, {decision: self._pair(decision) for decision in made}, include_default
        )

    def close(self) -> None:
        """Removes the pipes. Compilers whose pipes close spin forever, so a thread gives running
        ones the default advice, for up to a minute. You may call it twice."""
        ending = not self._closed and not lib.shmb_host_forked(self._h)
        super().close()
        if ending and threading.main_thread().is_alive():
            threading.Thread(target=self._see_out).start()
        elif ending:  # the interpreter is ending too, and would not wait for a thread
            self._see_out()

    def _hang_up(self) -> None:
        """Not yet."""

    def _see_out(self) -> None:
        """The bridge is closed: its runners have nothing to say, and so what is asked gets the
        default."""
        until = time.monotonic() + LINGER
        lib.shmb_pipe_server_stop(self._server)
        while True:
            lib.shmb_pipe_server_run(self._server, ffi.NULL, SLICE_NS)
            if not self.runners or time.monotonic() > until:
                break
        lib.shmb_pipe_server_close(self._server)


PLUGIN = LlvmHost
