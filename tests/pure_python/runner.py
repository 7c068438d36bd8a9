"""The runner."""

import math
import time

from . import segment as s
from .errors import Error, Status, Violation
from .link import Link
from .message import DTYPES

NO_LIMIT = 2**64 - 1
FINAL = Status.CORRUPT, Status.CLOSED, Status.HOST_GONE


class Runner:
    """Asks one question at a time. `evaluate` sends Fields and returns those of the reply."""

    def __init__(self, name, connect_timeout=10.0):
        end = time.monotonic() + connect_timeout
        while True:
            try:
                return self._open(name, end)
            except Error as error:
                temporary = error.status in (Status.NO_HOST, Status.BUSY)
                if not temporary or time.monotonic() > end:
                    raise
            time.sleep(0.002)

    def _open(self, name, end):
        self.segment, self.semaphores, self.broken = s.attach(name), [], None
        self.sequence, self.owed = 0, 0  # the last question; the last one without a reply
        try:
            self._claim(end)
        except BaseException:
            self._release()
            raise

    def _claim(self, end):
        """Steps 5 to 9."""
        segment = self.segment
        if not s.locked(segment.file, s.HOST_LOCK) or segment.load(s.H_CLOSED):
            raise Error(Status.NO_HOST, "the host is gone")
        channels = range(segment.channels)
        self.index = next((i for i in channels if s.lock(segment.file, 1 + i)), None)
        if self.index is None:
            raise Error(Status.BUSY, f"other runners have all {segment.channels} channels")
        self.at = segment.channel(self.index)
        self.asleep = self.at + s.R_ASLEEP
        try:
            for side in ("h", self.index):
                self.semaphores.append(s.Semaphore(segment.session, side))
        except FileNotFoundError as error:
            raise Error(Status.NO_HOST, str(error)) from None
        segment.store(self.asleep, 0)
        words = segment.load64(self.at + s.CLAIM), segment.load64(self.at + s.READY)
        self.generation = (max(word >> 8 & 0xFFFFFFFF for word in words) + 1) % 2**32
        segment.store64(self.at + s.CLAIM, self.generation << 8 | s.CLAIMED)
        self.semaphores[0].post()
        try:
            self._wait(lambda: self._ready(s.IS_READY), end)
        except Error as error:
            if error.status in FINAL:
                raise Error(Status.NO_HOST, error.text) from None
            raise
        nanoseconds = segment.load64(s.H_DEADLINE)
        self.deadline = math.inf if nanoseconds == NO_LIMIT else (nanoseconds or 10**10) / 1e9
        slots, free = range(segment.slots), segment.load(self.at + s.FREE_SLOTS)
        owned = [slot for slot in slots if free >> slot & 1]
        wake = self.semaphores[0], s.H_ASLEEP
        self.link = Link(segment, self.index, 0, self.generation, owned, slots, wake)

    def _ready(self, state):
        return self.segment.load64(self.at + s.READY) == self.generation << 8 | state

    def _wait(self, arrived, end, late="the host did not answer in time"):
        """Steps 22 to 25."""
        spin = time.monotonic() + 50e-6
        while not arrived():
            if (now := time.monotonic()) < spin:
                continue
            reason = self._why_gone()
            if arrived():
                return
            if reason:
                raise Error(*reason)
            if now > end:
                raise Error(Status.TIMEOUT, late)
            self.segment.sleep(self.asleep, self.semaphores[1], end - now, arrived)

    def _why_gone(self):
        if self._ready(s.POISONED):
            size = min(self.segment.load(self.at + s.REASON_BYTES), 176)
            reason = self.segment.read(self.at + s.REASON, size)
            return Status.CORRUPT, reason.decode(errors="replace")
        if self.segment.load64(self.at + s.CLAIM) >> 8 & 0xFFFFFFFF != self.generation:
            return Status.CLOSED, "another runner has the channel"
        if self.segment.load(s.H_CLOSED):
            return Status.CLOSED, "the host closed the bridge"
        if not s.locked(self.segment.file, s.HOST_LOCK):
            return Status.HOST_GONE, "the host died"
        return None

    def evaluate(self, fields, want="any", deadline=None):
        if self.broken:
            raise self.broken
        end = time.monotonic() + (self.deadline if deadline is None else deadline)
        try:
            while self.owed:
                self._take(end, "not asked, since an earlier reply is still missing")
            self.link.send(self.sequence + 1, fields, set(self.link.taken), DTYPES.index(want))
            self.sequence = self.owed = self.sequence + 1
            reply = self._take(end)
            while reply.sequence != self.sequence:
                reply = self._take(end)
        except Violation as violation:
            self.broken = Error(Status.CORRUPT, str(violation))
            raise self.broken from None
        except Error as error:
            if error.status in FINAL:
                self.broken = error
            raise
        if reply.failure is not None:
            raise Error(reply.code or Status.MODEL, reply.failure)
        if want != "any" and [DTYPES[field.dtype] for field in reply.fields] != [want]:
            raise Error(Status.MISMATCH, f"the reply is not one field of {want}")
        return reply.fields

    def _take(self, end, *late):
        self._wait(self.link.waiting, end, *late)
        reply = self.link.take()
        if reply.sequence == self.owed:
            self.owed = 0
        return reply

    def _release(self):
        for semaphore in self.semaphores:
            semaphore.close()
        self.segment.close()

    def close(self):
        """Step 10."""
        self.segment.store64(self.at + s.CLAIM, self.generation << 8 | s.FREE)
        s.unlock(self.segment.file, 1 + self.index)
        self.semaphores[0].post()
        self._release()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
