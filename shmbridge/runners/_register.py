"""A Python runner kind in the C core's registry: the callbacks that C calls, from the runner's
thread."""

import math
import weakref
from collections.abc import Mapping
from typing import Any

from shmbridge._native import ffi, lib
from shmbridge._urls import plugins
from shmbridge._urls.options import split
from shmbridge._values import tensor
from shmbridge._values.fields import Values, as_wanted, dtype_of
from shmbridge.errors import UnsupportedError
from shmbridge.runners._base import RunnerKind

open_runners: dict[Any, RunnerKind] = {}  # by the handle that C has; each keeps its handle alive


def _open(context: Any, where: Any, options: Any, state: Any, sink: Any) -> int:
    try:
        kind: type[RunnerKind] = ffi.from_handle(context)
        path, given = split(ffi.string(where).decode())
        runner = kind.__new__(kind)
        runner.connect_timeout = options.connect_timeout
        runner.__init__(path, **given)  # type: ignore[misc]
        if runner.deadline is not None:
            lib.shmb_sink_deadline(sink, runner.deadline)
        state[0] = handle = ffi.new_handle(runner)
        open_runners[handle] = runner
        return int(lib.SHMB_OK)
    except BaseException as error:
        return plugins.failed(sink, error, lib.SHMB_INVALID)


def _evaluate(state: Any, features: Any, count: int, want: int, deadline: float, sink: Any) -> int:
    runner = ffi.from_handle(state)
    values = Values(features, count)
    kept = weakref.ref(values)
    try:
        runner._sink = sink
        seconds = None if deadline == math.inf else deadline
        advice = runner.evaluate(values, dtype_of(want), seconds)
        for field in as_wanted(advice if isinstance(advice, Mapping) else {"advice": advice}, want):
            tensor.write_field(lambda *a: lib.shmb_sink_field(sink, *a), field)
        return int(lib.SHMB_OK)
    except BaseException as error:
        return plugins.failed(sink, error, lib.SHMB_MODEL)
    finally:
        runner._sink = advice = None
        del values
        if (others := kept()) is not None:
            others.detach()


def _close(state: Any) -> None:
    try:
        open_runners.pop(state).close()
    except BaseException as error:
        plugins.carry(error)


ffi.def_extern("shmb_python_open", error=lib.SHMB_INVALID)(_open)
ffi.def_extern("shmb_python_evaluate", error=lib.SHMB_INVALID)(_evaluate)
ffi.def_extern("shmb_python_close")(_close)


def register(scheme: str, kind: Any) -> None:
    """As plugins.register. Errors: also UnsupportedError."""
    if not (isinstance(kind, type) and issubclass(kind, RunnerKind)):
        raise UnsupportedError(
            f"the plug-in {scheme!r}: expected a subclass of shmbridge.runners.RunnerKind, found "
            f"{kind!r}"
        )
    calls = lib.shmb_python_open, lib.shmb_python_evaluate, lib.shmb_python_close
    plugins.register("shmb_runner_kind", lib.shmb_register_runner, scheme, kind, *calls)
    plugins.python_schemes.add(scheme)
