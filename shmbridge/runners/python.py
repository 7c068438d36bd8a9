"""python://MODULE:FUNCTION: a Python function in this process; in a C program through `shmbridge
embed`."""

import importlib.util
import inspect
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from shmbridge._urls.plugins import split_place
from shmbridge.errors import InvalidError, undone_by
from shmbridge.runners._base import RunnerKind, late

Function = Callable[[Mapping[str, Any]], Any]


_importing = threading.RLock()


def _allow_imports() -> None:
    global _importing
    _importing = threading.RLock()


os.register_at_fork(after_in_child=_allow_imports)  # a thread that the child lacks may hold it


def _is_file(module: str) -> bool:
    return os.sep in module or module.endswith(".py")


def _search(folder: str) -> None:
    """From now on Python looks for modules there first."""
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _import_file(path: str) -> Any:
    """The module in a file, imported once, under the file's name unless another module has that.
    What it imports may lie beside it."""
    folder, name = os.path.split(path)
    with _importing:  # of two threads, the second one must not find half a module
        for known in (stem := name.removesuffix(".py"), real := os.path.realpath(path)):
            if os.path.realpath(getattr(sys.modules.get(known), "__file__", None) or "") == real:
                return sys.modules[known]
        _search(folder)
        spec = importlib.util.spec_from_file_location(real if stem in sys.modules else stem, path)
        if spec is None or spec.loader is None:
            raise ImportError("expected a file whose name ends in .py")
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        with undone_by(partial(sys.modules.__delitem__, spec.name)):
            spec.loader.exec_module(module)
        return module


def check_function(model: Any) -> None:
    """InvalidError for what returns no advice when it is called."""
    if not callable(model):
        raise InvalidError(f"expected a function, found {type(model).__name__}")
    if any(map(inspect.iscoroutinefunction, (model, model.__call__))):
        name = getattr(model, "__name__", "model")
        raise InvalidError(
            "expected a function that returns advice, found an async one: give it to an event "
            f"loop, as in lambda request: asyncio.run({name}(request))"
        )


def load(place: str, path: str | None = None) -> Function:
    """The function that "module:function" or "/folder/file.py:function" names. path: a directory
    that is searched first from now on. InvalidError: why not."""
    module, name = split_place(place)
    if path is not None:
        _search(path := os.path.abspath(path))
        if os.path.isfile(file := os.path.join(path, f"{module}.py")):
            module = file  # Python itself prefers a MODULE.so there, such as the compiled model
    try:
        found: Any = (
            _import_file(os.path.abspath(module))
            if _is_file(module)
            else importlib.import_module(module)
        )
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        where = f" ({at.filename}:{at.lineno})"
        if isinstance(error, ModuleNotFoundError) and error.name == module.partition(".")[0]:
            where = (
                ": give its folder with path=DIR"
                if path is None
                else (
                    f" in {path}, nor where Python looks; a file is found from every folder, "
                    f"for example /home/me/{module}.py:{name}"
                )
            )
        elif at.filename == __file__ or "importlib" in at.filename:
            where = ""
        raise InvalidError(f"{place}: {type(error).__name__}: {error}{where}") from error
    try:
        check_function(found)
    except InvalidError as error:
        raise InvalidError(f"{place}: {error}") from None
    return found  # type: ignore[no-any-return]


class CallThread:
    """Calls a function in its own thread, so that the caller can stop waiting: late answers are
    discarded."""

    def __init__(self, function: Function, take: Callable[[Any, float | None], Any]) -> None:
        self._function, self._get = function, take
        self._questions: SimpleQueue[tuple[Function, Mapping[str, Any]] | None] = SimpleQueue()
        self._answers: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._owed = False  # the answer to a question that nobody waits for any more
        queues = self._questions, self._answers
        threading.Thread(target=_work, args=queues, name="shmbridge-python", daemon=True).start()

    def ask(self, features: Mapping[str, Any], deadline: float | None) -> Any:
        """What the function returns or raises. DeadlineError: nothing, within deadline seconds."""
        until = None if deadline is None else time.monotonic() + deadline
        if self._owed:
            self._take(until, deadline)
        self._questions.put((self._function, features))
        self._owed = True
        value, error = self._take(until, deadline)
        if error is not None:
            raise error
        return value

    def _take(self, until: float | None, deadline: float | None) -> Any:
        left = None if until is None else max(until - time.monotonic(), 0)
        try:
            answer = self._get(self._answers, left)
        except Empty:
            raise late(deadline) from None
        self._owed = False
        return answer

    def close(self) -> None:
        self._questions.put(None)


def _work(questions: SimpleQueue[Any], answers: SimpleQueue[Any]) -> None:
    """Between questions the thread refers to no function: the function's module could not be
    cleared when Python ends, and text in its open files would be lost."""
    while (question := questions.get()) is not None:
        answers.put(_outcome(*question))
        del question


def _outcome(function: Function, features: Any) -> tuple[Any, BaseException | None]:
    try:
        return function(features), None
    except BaseException as error:
        return None, error


class PythonRunner(RunnerKind):
    """python://MODULE:FUNCTION?path=DIR, or python:///FOLDER/FILE.py:FUNCTION: FUNCTION(features)
    returns the advice, as for `shmbridge serve --python`. DIR is searched first, and the current
    directory only with path=. as an option. Other options are keyword arguments, as text. A class
    is instantiated with them once per runner, then called; its `close`, if it has one, is called at
    the end. Runners of several threads call at the same time. With a deadline, calls run in a
    thread of the runner: Python cannot be stopped, so a late or interrupted call continues, and the
    next one waits for its end."""

    def __init__(self, where: str, path: str | None = None, **options: str) -> None:
        found: Any = load(
            where if _is_file(split_place(where)[0].lstrip("/")) else where.lstrip("/"), path
        )
        try:
            if isinstance(found, type):
                found = found(**options)
            else:
                with suppress(ValueError):  # some functions in C have no signature
                    inspect.signature(found).bind(None, **options)
                found = partial(found, **options) if options else found
        except TypeError as error:
            raise InvalidError(
                f"python://{where}: the URL's other options are keyword arguments: {error}"
            ) from error
        self._function: Function = found
        self._thread: CallThread | None = None

    def evaluate(
        self, features: Mapping[str, Any], want: np.dtype[Any] | None, deadline: float | None
    ) -> Any:
        if deadline is not None and self._thread is None:
            self._thread = CallThread(self._function, self.take)
        return self._thread.ask(features, deadline) if self._thread else self._function(features)

    def close(self) -> None:
        if self._thread:
            self._thread.close()
        close = getattr(self._function, "close", None)
        if close:
            close()


PLUGIN = PythonRunner
