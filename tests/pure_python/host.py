"""The host."""

import contextlib
import os
import time

from . import segment as s
from . import sweep
from .convert import convert
from .errors import Error, Status, Violation
from .link import Link
from .message import DTYPES


class Request:
    """A question of a runner, answered by `reply` or `fail` once."""

    def __init__(self, channel, message):
        self.channel, self.link, self.message = channel, channel.link, message
        self.fields, self.want = message.fields, DTYPES[message.code]

    def reply(self, fields):
        try:
            if self.message.code and len(fields) == 1:
                fields = [convert(fields[0], self.message.code)]
            self._send(lambda returns: self.link.send(self.message.sequence, fields, returns))
        except Error as error:
            if error.status not in (Status.INEXACT, Status.MISMATCH, Status.TOO_LARGE):
                raise
            self.fail(error.status, error.text)

    def fail(self, code, text):
        self._send(lambda returns: self.link.fail(self.message.sequence, code, text, returns))

    def _send(self, send):
        if self.channel.closed:
            raise Error(Status.CLOSED, "this host is closed")
        self.channel.look()
        if self.channel.link is not self.link:
            raise Error(Status.RUNNER_GONE, "the runner that asked is gone")
        try:
            send({self.message.slot})
        except Violation as violation:  # step 21
            self.channel.poison(str(violation))
            raise Error(Status.CORRUPT, str(violation)) from None


class Channel:
    def __init__(self, segment, index):
        self.segment, self.index, self.at = segment, index, segment.channel(index)
        self.semaphore = s.Semaphore(segment, self.at + s.R_SEMAPHORE)
        self.claim, self.link, self.closed = 0, None, False

    def look(self):
        """Notice a new claim. Step 8."""
        claim = self.segment.load64(self.at + s.CLAIM)
        if claim == self.claim:
            return
        self.claim, self.link = claim, None
        if claim & 0xFF != s.CLAIMED:
            return
        slots = range(self.segment.slots)
        for ring in range(2 * self.segment.slots):
            self.segment.store64(self.at + 640 + 64 * ring, 0)
        self.segment.store(self.at + s.FREE_SLOTS, (1 << len(slots)) - 1)
        generation = claim >> 8 & 0xFFFFFFFF
        wake = self.semaphore, self.at + s.R_ASLEEP
        self.link = Link(self.segment, self.index, 1, generation, slots, slots, wake)
        self._store_ready(s.IS_READY)

    def _store_ready(self, state):
        self.segment.store64(self.at + s.READY, self.link.generation << 8 | state)
        self.semaphore.post()

    def waiting(self):
        claim = self.segment.load64(self.at + s.CLAIM)
        return claim != self.claim or (self.link is not None and self.link.waiting())

    def take(self):
        """The next request, or None."""
        self.look()
        try:
            if not (self.link and self.link.waiting()):
                return None
            return Request(self, self.link.take())
        except Violation as violation:
            self.poison(str(violation))
        return None

    def poison(self, reason):
        """Step 20."""
        text = reason.encode()[:176]
        self.segment.write(self.at + s.REASON, text)
        self.segment.store(self.at + s.REASON_BYTES, len(text))
        self._store_ready(s.POISONED)
        self.link = None

    def check(self):
        """Notice a dead runner. Step 25."""
        if self.link and not s.locked(self.segment.file, 1 + self.index):
            self.link = None


class Host(s.Closing):
    """A bridge of `channels`. The sizes of a slot are those of requests and of replies."""

    def __init__(self, name, channels=1, slots=4, meta=(1024, 1024), body=(4096, 4096)):
        self.path, self.checked = s.path_of(name), 0.0
        while not self._create(channels, slots, meta, body):
            pass
        try:
            self._publish()
        except BaseException:
            self._close(self.temporary)
            raise

    def _create(self, *sizes):
        """Step 1. Whether the file still has its name when it is locked."""
        session = os.urandom(16)
        self.temporary = self.path.with_name(f"{self.path.name}~{session.hex()}")
        file = os.open(self.temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        s.lock(file, s.HOST_LOCK)
        if not os.fstat(file).st_nlink:
            os.close(file)
            return False
        superblock = s.make_superblock(session, *sizes)
        os.posix_fallocate(file, 0, superblock[3])
        os.pwrite(file, s.SUPERBLOCK.pack(*superblock), 0)
        self.segment = s.Segment(file, superblock)
        self.semaphore = s.Semaphore(self.segment, s.H_SEMAPHORE)
        self.channels = [Channel(self.segment, i) for i in range(self.segment.channels)]
        return True

    def _publish(self):
        """Steps 2 and 3."""
        for _ in range(10):
            with contextlib.suppress(FileExistsError):
                os.link(self.temporary, self.path)
                self.temporary.unlink()
                for left in self.path.parent.glob(f"{self.path.name}~*"):
                    with contextlib.suppress(OSError):
                        sweep.remove_if_dead(left)
                return
            with contextlib.suppress(FileNotFoundError):
                self._take_over()
        raise Error(Status.IN_USE, f"{self.path} does not go away")

    def _take_over(self):
        with self.path.open("rb") as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                raise Error(Status.PERMISSION, f"{self.path} belongs to another user")
            if sweep.host_lives(file.fileno()):
                raise Error(Status.IN_USE, f"a live host has {self.path}")
        sweep.remove_if_dead(self.path)

    def receive(self, timeout):
        """The next request, or None after `timeout` seconds."""
        s.lock(self.segment.file, s.LOOP_LOCK)
        end, spin = time.monotonic() + timeout, time.monotonic() + 50e-6
        while True:
            for channel in self.channels:
                if request := channel.take():
                    self.channels.remove(channel)  # the others first, next time
                    self.channels.append(channel)
                    return request
            now = time.monotonic()
            if now > self.checked + 0.1:
                self.checked = now
                for channel in self.channels:
                    channel.check()
            if now >= end:
                return None
            if now > spin:
                self.segment.sleep(s.H_ASLEEP, self.semaphore, end - now, self._waiting)

    def _waiting(self):
        return any(channel.waiting() for channel in self.channels)

    def close(self):
        """Step 4."""
        self._close(self.path)

    def _close(self, name):
        sweep.unlink(name, self.segment.file)
        self.segment.store(s.H_CLOSED, 1)
        for owner in (self, *self.channels):
            owner.semaphore.post()
            owner.closed = True
        self.segment.close()
