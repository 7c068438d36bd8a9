"""The runner."""

import contextlib
import math
import time

from . import segment as s
from .errors import Error, Status, Violation
from .link import Link
from .message import DTYPES

NO_LIMIT = 2**64 - 1
FINAL = Status.CORRUPT, Status.CLOSED, Status.HOST_GONE


class Runner(s.Closing):
    """Sends Fields, and receives those of the reply: `evaluate` is both."""

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
        self.segment, self.broken = s.attach(name), None
        self.sequence, self.owed = 0, 0  # the last question; the last one that was given up
        self.open, self.replies = {}, {}  # questions: when they are late, and what they want
        try:
            self._claim(end)
        except BaseException:
            self.segment.close()
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
        self.host_semaphore = s.Semaphore(segment, s.H_SEMAPHORE)
        self.semaphore = s.Semaphore(segment, self.at + s.R_SEMAPHORE)
        segment.store(self.asleep, 0)
        words = segment.load64(self.at + s.CLAIM), segment.load64(self.at + s.READY)
        self.generation = (max(word >> 8 & 0xFFFFFFFF for word in words) + 1) % 2**32
        segment.store64(self.at + s.CLAIM, self.generation << 8 | s.CLAIMED)
        self.host_semaphore.post()
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
        wake = self.host_semaphore, s.H_ASLEEP
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
            self.segment.sleep(self.asleep, self.semaphore, end - now, arrived)

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
        return self.receive(self.send(fields, want, deadline))

    def send(self, fields, want="any", deadline=None):
        """The number of the question. Step 18."""
        end = time.monotonic() + (self.deadline if deadline is None else deadline)
        with self._breaking():
            while self.owed:
                self._take(end, "not asked, since an earlier reply is still missing")
            while not self.link.owned:
                self._take(end)
            self.sequence += 1  # before it is sent: Ctrl-C may come at once
            self.link.send(self.sequence, fields, set(self.link.taken), DTYPES.index(want))
            self.open[self.sequence] = end, want
            return self.sequence

    def receive(self, sequence):
        end, want = self.open[sequence]
        try:
            with contextlib.nullcontext() if sequence in self.replies else self._breaking():
                while sequence not in self.replies:
                    self._take(end)
        except Error as error:
            if error.status == Status.TIMEOUT:
                self.owed = sequence
            raise
        finally:
            del self.open[sequence]
        reply = self.replies.pop(sequence)
        if reply.failure is not None:
            raise Error(reply.code or Status.MODEL, reply.failure)
        if want != "any" and [DTYPES[field.dtype] for field in reply.fields] != [want]:
            raise Error(Status.MISMATCH, f"the reply is not one field of {want}")
        return reply.fields

    @contextlib.contextmanager
    def _breaking(self):
        """What the host did wrong, or its end, is the result of every later call."""
        if self.broken:
            raise self.broken
        try:
            yield
        except Violation as violation:
            self.broken = Error(Status.CORRUPT, str(violation))
            raise self.broken from None
        except Error as error:
            if error.status in FINAL:
                self.broken = error
            raise

    def _take(self, end, *late):
        self._wait(self.link.waiting, end, *late)
        reply = self.link.take()
        if reply.sequence == self.owed:
            self.owed = 0
        if reply.sequence in self.open:
            self.replies.setdefault(reply.sequence, reply)
        return reply

    def close(self):
        """Step 10."""
        self.segment.store64(self.at + s.CLAIM, self.generation << 8 | s.FREE)
        s.unlock(self.segment.file, 1 + self.index)
        self.host_semaphore.post()
        self.segment.close()
