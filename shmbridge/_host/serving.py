"""A model that answers a host's requests in its own thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress

from shmbridge._host.receiving import Receiving
from shmbridge._host.service import Model, Question, Service, logger
from shmbridge._native import lib
from shmbridge.errors import ShmbridgeError, error_text

JOIN = 0.9  # seconds that stop() waits for a model that computes


class Serving:
    """A model that answers in a thread until its with block ends; returned by `Host.start`. The
    host stays open.

    If the thread ends early, except by the host's close or `until_idle`, the error goes to the
    logger "shmbridge" immediately. It is raised again at the end of the with block, unless another
    error ends the block.
    """

    def __init__(self, host: Receiving, service: Service, questions: Iterator[Question]) -> None:
        self._handle, self._service = host._h, service
        self._error: BaseException | None = None
        # A daemon: a model that hangs must not keep the process.
        self._thread = threading.Thread(target=self._run, args=(host, questions), daemon=True)
        self._thread.start()

    @property
    def model(self) -> Model:
        """The model. A newly assigned one answers from the next request or batch on."""
        return self._service.model

    @model.setter
    def model(self, model: Model) -> None:
        self._service.model = model

    @property
    def errors(self) -> int:
        """How many requests were answered with an error."""
        return self._service.errors

    @property
    def alive(self) -> bool:
        """Whether the thread is still answering."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Ends the thread within a second. A model that computes for longer finishes its current
        answer, which is its last. You may call it twice.

        Raises:
            Exception: The error that ended the thread early.
        """
        self._service.stopping = True
        if threading.current_thread() is self._thread:  # the model has had enough
            return
        if self.alive:
            lib.shmb_host_wake(self._handle)
        self._thread.join(JOIN)
        error, self._error = self._error, None
        if error is not None:
            raise error

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.stop()
        except BaseException:
            if error is None:
                raise

    def _run(self, host: Receiving, questions: Iterator[Question]) -> None:
        question: Question | None = None
        try:
            with self._service, host._answering_with(self._service):
                for question in questions:
                    self._service.answer(question)
                    if self._service.stopping:
                        break
        except BaseException as error:
            logger.error("serving has ended: %s", error_text(error), exc_info=error)
            self._error = error
            with suppress(ShmbridgeError):  # the host is closed, or it has been answered
                if question is not None:
                    question.fail(error)
        finally:
            del questions  # its end tells waiting runners that no loop is running
            if host._serving is self:
                host._serving = None
