"""Handles a question: asks the model, answers, records the decision, and reports errors."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from shmbridge._host.batch import Batch, by_name, rows_by_request
from shmbridge._host.request import Request
from shmbridge.errors import ClosedError, Closing, InvalidError, error_text, own_line
from shmbridge.runners.python import check_function

if TYPE_CHECKING:
    from shmbridge.logs import LogWriter

Question: TypeAlias = Request | Batch
# Any function of a mapping is a Callable[[Request], Any].
Model: TypeAlias = Callable[[Request], Any] | Callable[[Batch], Any]
Path: TypeAlias = str | os.PathLike[str]

KINDS = 100  # of errors that are told
logger = logging.getLogger("shmbridge")


class Service(Closing):
    """Answers questions with a model. If the model raises, the runner gets an error; the logger
    "shmbridge" gets the traceback once for each type and place. Without logging set up, that goes
    to stderr.

    record: a file for the advice that runners received, which the service closes; or a writer.
    """

    def __init__(self, model: Model, *, record: Path | LogWriter | None = None) -> None:
        self.errors = 0  # questions that were answered with one
        self.stopping = False  # the loop is to end after the question under way
        self.model = model
        self._reported: set[Any] = set()
        self._own_record = isinstance(record, (str, os.PathLike))
        if isinstance(record, (str, os.PathLike)):
            from shmbridge.logs import LogWriter

            record = LogWriter(record, warn=logger.warning)
        self._record = record

    @property
    def model(self) -> Model:
        """The model. Any thread may assign another one between two questions."""
        return self._given

    @model.setter
    def model(self, model: Model) -> None:
        check_function(model)
        self._given = model
        self._model: Callable[[Any], Any] = model

    def close(self) -> None:
        if self._record and self._own_record:
            self._record.close()

    def answer(self, question: Question) -> None:
        """Replies with the model's advice, or with its error."""
        try:
            if self._record:
                self._answer_and_record(question, self._record)
            else:
                question.reply(self._model(question))
        except Exception as error:
            self._fail(question, error)

    def _answer_and_record(self, question: Question, record: LogWriter) -> None:
        requests = question.requests if isinstance(question, Batch) else [question]
        # The reply ends the request.
        asked = [(dict(request), request.wanted, request.label) for request in requests]
        advice = by_name(self._model(question))
        rows = rows_by_request(question, advice) if isinstance(question, Batch) else [advice]
        first: Exception | None = None
        for request, (features, want, label), row in zip(requests, asked, rows, strict=True):
            try:
                if request.reply(**row):
                    record.record(features, row, want=want, label=label)
            except Exception as error:
                first = first or error
        if first:
            raise first

    def _fail(self, question: Question, error: Exception) -> None:
        self.errors += len(question) if isinstance(question, Batch) else 1
        with suppress(ClosedError, InvalidError):  # it may have been answered
            question.fail(error)
        kind = (type(error), own_line(error))
        if isinstance(error, ClosedError) or kind in self._reported or len(self._reported) >= KINDS:
            return
        self._reported.add(kind)
        logger.error("error, sent to the runner: %s", error_text(error), exc_info=error)
