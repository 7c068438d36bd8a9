"""LLVM's interactive channel: "llvm:///PATH", for stock opt, llc, clang and rustc."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from shmbridge import llvm
from shmbridge._native import lib
from shmbridge.errors import InvalidError
from shmbridge.hosts import Line, Relayed, RelayedRequest

SLICE_NS = 50_000_000
LINGER = 60.0  # seconds


class LlvmRequest(RelayedRequest):
    """One decision's features, and "decision" and "context" as strings. A reply is rounded to float32 where it is no integer."""

    __slots__ = ()

    def reply(self, *args: Any, **named: Any) -> bool:
        """As `Request.reply`."""
        rounded = {name: llvm.rounded(value) for name, value in named.items()}
        return super().reply(*map(llvm.rounded, args), **rounded)


class LlvmHost(Relayed):
    """One pair of pipes, PATH.in and PATH.out, or with "llvm:///PATH?decisions=inline,evict,priority" one for each of these,
    PATH.inline.in and so on; `flags` makes a compiler use them. Each serves one compiler after another.

    defaults: what is advised where the model has nothing to say, by decision, as {"inline": 0}. linger: a compiler whose pipes
    close spins for ever, so when the host closes, a thread gives compilers that are at work the default advice until they
    have gone, for so many seconds at most.

    decisions: those of the URL, which have pipes each; empty for one pair of any.
    """

    _request_type = LlvmRequest

    def __init__(
        self,
        url: str,
        *,
        defaults: Mapping[str, Any] | None = None,
        linger: float = LINGER,
        **options: Any,
    ) -> None:
        self._closed = True
        self._path, _, query = url.partition("://")[2].partition("?")
        chosen = dict(part.partition("=")[::2] for part in query.split("&") if part)
        names = chosen.pop("decisions", "")
        self.decisions = llvm.asked_of("clang", names.split(",")) if names else []
        if chosen or not self._path or "\0" in self._path:
            raise InvalidError(
                f"{url!r}: expected llvm:///PATH, with no option but decisions=inline,evict,priority"
            )
        advice = {decision: str(value) for decision, value in (defaults or {}).items()}
        for decision, text in advice.items():
            llvm.check_default(decision, text)
            if decision not in self.decisions:
                raise InvalidError(
                    f"{url!r}: a default for {decision} needs ?decisions={decision}, which tells its pipes apart"
                )
        self._linger = linger
        lines = [
            Line(self._pair(decision), "llvm", advice.get(decision, ""))
            for decision in self.decisions
        ]
        super().__init__(url, lines or [Line(self._path, "llvm", "")], **options)

    def _pair(self, decision: str) -> str:
        return f"{self._path}.{decision}" if self.decisions else self._path

    def flags(self, compiler: str, *decisions: str, include_default: bool = False) -> list[str]:
        """The arguments that make a compiler ask here: flags("clang-22"). decisions: those to ask about, which must be one where
        the URL names none; otherwise the URL's. Errors: InvalidError (no compiler that is known, or none of its decisions)."""
        kind = llvm.kind_of(compiler)
        made = llvm.asked_of(kind, decisions or self.decisions)
        missing = [
            decision for decision in made if self.decisions and decision not in self.decisions
        ]
        if missing or (not self.decisions and len(made) != 1):
            raise InvalidError(
                f"{self.url} has pipes for {', '.join(self.decisions) or 'one decision'}, not for {', '.join(missing or made)}"
            )
        return llvm.flags(
            kind, {decision: self._pair(decision) for decision in made}, include_default
        )

    def close(self) -> None:
        """Removes the pipes. What compilers at work still ask gets the default advice, in a thread. May be called twice."""
        ending = not self._closed and not lib.shmb_host_forked(self._h)
        super().close()
        if ending and threading.main_thread().is_alive():
            threading.Thread(target=self._see_out).start()
        elif ending:  # the interpreter is ending too, and would not wait for a thread
            self._see_out()

    def _hang_up(self) -> None:
        """Not yet."""

    def _see_out(self) -> None:
        """The bridge is closed: its runners have nothing to say, and so what is asked gets the default."""
        until = time.monotonic() + self._linger
        lib.shmb_relay_stop(self._relay)
        while True:
            lib.shmb_relay_run(self._relay, SLICE_NS)
            if not self.runners or time.monotonic() > until:
                break
        lib.shmb_relay_close(self._relay)


PLUGIN = LlvmHost
