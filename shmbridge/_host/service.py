"""Handles a question: asks the model, answers, logs the decision, and reports errors."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from shmbridge._host.batch import Batch, PaddedBatch, answer_error, rows_by_request, rows_of
from shmbridge._host.decision_log import DecisionLog, entry
from shmbridge._host.request import Request, by_name
from shmbridge.errors import ClosedError, InvalidError, error_place, error_text
from shmbridge.runners.python import check_function

if TYPE_CHECKING:
    from shmbridge.logs import LogWriter

Question: TypeAlias = Request | Batch
# Any function of a mapping is a Callable[[Request], Any].
Model: TypeAlias = Callable[[Request], Any] | Callable[[Batch], Any]
Path: TypeAlias = str | os.PathLike[str]

KINDS = 100  # of errors that are told
logger = logging.getLogger("shmbridge")


class Service:
    """Answers questions with a model. If the model raises, the runner gets an error; the logger
    "shmbridge" gets the traceback once for each type and place. Without logging set up, that goes
    to stderr.

    log, record: a file for every decision, or for the advice that runners received, which the
        service closes; or a writer object.
    pad_to: the number of rows that the model always computes on; every question is then a Batch.
    """

    def __init__(
        self,
        model: Model,
        *,
        pad_to: int | None = None,
        log: Path | DecisionLog | None = None,
        record: Path | LogWriter | None = None,
    ) -> None:
        self.errors = 0  # questions that were answered with one
        self._pad_to = pad_to
        self.model = model
        self._told: set[Any] = set()
        with ExitStack() as files:
            self._log = _opened(files, log, DecisionLog)
            self._record = _opened(files, record, _log_writer)
            self._files = files.pop_all()

    @property
    def model(self) -> Model:
        """The model. Any thread may assign another one between two questions."""
        return self._given

    @model.setter
    def model(self, model: Model) -> None:
        check_function(model)
        self._given = model
        self._model: Callable[[Any], Any] = padded(model, self._pad_to) if self._pad_to else model

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def answer(self, question: Question) -> None:
        """Replies with the model's advice, or with its error."""
        try:
            if self._log or self._record:
                self._answer_and_keep(question)
                return
            question.reply(self._model(question))
        except Exception as error:
            self._fail(question, error)

    def _answer_and_keep(self, question: Question) -> None:
        requests = question.requests if isinstance(question, Batch) else [question]
        # The reply ends the request.
        asked = [(dict(request), request.wanted, request.label) for request in requests]
        try:
            advice = by_name(self._model(question))
            rows = rows_by_request(question, advice) if isinstance(question, Batch) else [advice]
        except Exception as error:
            for features, *_ in asked:
                self._write(features, len(asked), error=error_text(error))
            raise
        first: Exception | None = None
        for request, (features, want, label), row in zip(requests, asked, rows, strict=True):
            try:
                got = request.reply(**row)
                if got and self._record:
                    self._record.record(features, row, want=want, label=label)
                if not got and (refused := request._refused):
                    self._write(features, len(asked), error=error_text(refused))
                else:
                    self._write(features, len(asked), advice=entry(row))
            except Exception as error:
                first = first or error
                self._write(features, len(asked), error=error_text(error))
        if first:
            raise first

    def _write(self, features: Mapping[str, Any], size: int, **outcome: Any) -> None:
        if self._log:
            self._log.write(entry(features), **outcome, **({"batch": size} if size > 1 else {}))

    def _fail(self, question: Question, error: Exception) -> None:
        self.errors += len(question) if isinstance(question, Batch) else 1
        with suppress(ClosedError):
            answer_error(question, error)
        kind = (type(error), error_place(error))
        if isinstance(error, ClosedError) or kind in self._told or len(self._told) >= KINDS:
            return
        self._told.add(kind)
        logger.error("error, sent to the runner: %s", error_text(error), exc_info=error)


def _opened(files: ExitStack, given: Any, make: Callable[[Path], Any]) -> Any:
    """What writes to a path, until `files` closes it; or the writer that was given."""
    if isinstance(given, (str, os.PathLike)):
        return files.enter_context(closing(make(given)))
    return given


def _log_writer(path: Path) -> LogWriter:
    from shmbridge.logs import LogWriter

    return LogWriter(path, warn=logger.warning)


def padded(model: Model, rows: int) -> Callable[[Batch], dict[str, Any]]:
    """The model as one that always computes on the same number of rows, so that a request's result
    does not depend on the batch's size. It receives a `PaddedBatch` and returns a row for each of
    them."""
    ask: Callable[[Any], Any] = model

    def answer(batch: Batch) -> dict[str, Any]:
        if len(batch) > rows:
            raise InvalidError(
                f"pad_to={rows}: expected batches no larger than that, found one of {len(batch)}"
            )
        advice = by_name(ask(PaddedBatch(batch.requests, rows)))
        why = f"as pad_to={rows} says"
        return {
            name: rows_of(name, values, rows, why)[: len(batch)] for name, values in advice.items()
        }

    return answer
