"""The segment, its locks and its semaphores."""

import ctypes
import errno
import fcntl
import os
import platform
import struct
import threading
from mmap import mmap
from pathlib import Path

from .errors import Error, Status

VERSION = 3
HOST_LOCK, LOOP_LOCK, SWEEP_LOCK = 0, 257, 258
H_SEMAPHORE, H_ASLEEP, H_CLOSED, H_DEADLINE = 128, 256, 260, 272  # words of the host
CLAIM, R_ASLEEP, READY, FREE_SLOTS, REASON_BYTES, REASON = 0, 16, 384, 392, 396, 416  # of a channel
R_SEMAPHORE = 592
FREE, CLAIMED, IS_READY, POISONED = range(4)
SUPERBLOCK = struct.Struct("=8sIIQ16sIIQQQQQQQQ")

libc = ctypes.CDLL(None, use_errno=True)
NR_FUTEX = {"x86_64": 202, "aarch64": 98}[platform.machine()]
FUTEX_WAIT, FUTEX_WAKE_OP, FUTEX_OP_ADD = 0, 5, 1 << 28
_fence = threading.Lock()


def fence():
    with _fence:  # its locked instruction is a full fence
        pass


class Closing:
    """What a `with` statement closes at its end."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Semaphore:
    """A count in the segment. The kernel adds to it (FUTEX_WAKE_OP), which Python cannot do."""

    def __init__(self, segment, at):
        self.segment, self.at = segment, at
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(segment.bytes, at))

    def _futex(self, operation, value, time_or_count=0, second=0, change=0):
        numbers = NR_FUTEX, self.address, operation, value, time_or_count, second, change
        libc.syscall(*map(ctypes.c_long, numbers))

    def _add(self, number):
        """Wakes one sleeper, too."""
        self._futex(FUTEX_WAKE_OP, 1, 0, self.address, FUTEX_OP_ADD | (number & 0xFFF) << 12)

    def post(self):
        self._add(1)

    def wait(self, seconds):
        """A hint: it may end early."""
        nanoseconds = max(1, int(seconds * 1e9))
        time = ctypes.create_string_buffer(struct.pack("=qq", *divmod(nanoseconds, 10**9)))
        if not self.segment.load(self.at):
            self._futex(FUTEX_WAIT, 0, ctypes.addressof(time))
        if self.segment.load(self.at):
            self._add(-1)


def _flock(file, command, kind, byte):
    flock = struct.pack("hhqqi4x", kind, os.SEEK_SET, byte, 1, 0)
    return struct.unpack_from("h", fcntl.fcntl(file, command, flock))[0]


def lock(file, byte):
    """Whether this open file now has the lock."""
    try:
        _flock(file, fcntl.F_OFD_SETLK, fcntl.F_WRLCK, byte)
    except OSError as error:
        if error.errno != errno.EAGAIN:
            raise
        return False
    return True


def unlock(file, byte):
    _flock(file, fcntl.F_OFD_SETLK, fcntl.F_UNLCK, byte)


def locked(file, byte):
    """Whether another open file has the lock."""
    return _flock(file, fcntl.F_OFD_GETLK, fcntl.F_WRLCK, byte) != fcntl.F_UNLCK


def up(n, multiple):
    return -(-n // multiple) * multiple


def make_superblock(session, channels, slots, meta, body):
    lanes = sum(slots * (m + b) + 64 + m for m, b in zip(meta, body, strict=True))
    stride, slot_stride = 640 + 128 * slots, up(lanes, 4096)
    slot_offset = up(512 + channels * stride, 4096)
    size = slot_offset + channels * slot_stride
    sizes = *meta, *body, 512, stride, slot_offset, slot_stride
    return b"HMBRDG1\0", VERSION, 0, size, session, channels, slots, *sizes


def check(superblock, file_size):
    magic, version, features, size, session, channels, slots, *sizes = superblock
    meta, body = sizes[0:2], sizes[2:4]
    if magic != b"HMBRDG1\0":
        raise Error(Status.CORRUPT, "this is not a segment")
    if (version, features) != (VERSION, 0):
        raise Error(Status.INCOMPATIBLE, f"version {version} with features {features:#x}")
    if (
        not 1 <= channels <= 256
        or slots not in (2, 4, 8, 16, 32)
        or any(m % 64 or not 256 <= m <= 2**32 - 64 for m in meta)
        or any(b % 64 or not 64 <= b <= 2**40 for b in body)
        or superblock != make_superblock(session, channels, slots, meta, body)
        or size != file_size
    ):
        raise Error(Status.CORRUPT, "the superblock contradicts itself")


class Segment:
    """An open segment: its sizes, its memory by offset, and the file with the locks."""

    def __init__(self, file, superblock):
        size, self.session, self.channels, self.slots = superblock[3:7]
        self.meta, self.body = superblock[7:9], superblock[9:11]
        self.stride, self.slot_offset, self.slot_stride = superblock[12:]
        self.file = file
        second = os.open(f"/proc/self/fd/{file}", os.O_RDWR | os.O_CLOEXEC)
        self.bytes = mmap(second, size)  # keeps its file, which must not be the one with the locks
        os.close(second)
        # Words are read and written whole.
        self.u32, self.u64 = (memoryview(self.bytes).cast(code) for code in "IQ")

    def load(self, at):
        return self.u32[at // 4]

    def store(self, at, value):
        self.u32[at // 4] = value

    def load64(self, at):
        return self.u64[at // 8]

    def store64(self, at, value):
        self.u64[at // 8] = value

    def read(self, at, size):
        return self.bytes[at : at + size]

    def write(self, at, data):
        self.bytes[at : at + len(data)] = data

    def channel(self, index):
        return 512 + index * self.stride

    def sleep(self, asleep, semaphore, seconds, awake):
        """Step 23."""
        self.store(asleep, 1)
        fence()
        if not awake():
            semaphore.wait(min(seconds, 0.1))
        self.store(asleep, 0)

    def close(self):
        self.u32.release()
        self.u64.release()
        self.bytes.close()
        os.close(self.file)


def path_of(url):
    """The file of NAME, shm://NAME?dir=/DIR or /DIR/NAME: "Files and locks"."""
    where, _, options = url.removeprefix("shm://").partition("?")
    directory, _, name = where.rpartition("/")
    given = dict(option.split("=", 1) for option in options.split("&") if option)
    place = directory or given.get("dir") or os.environ.get("SHMBRIDGE_DIR") or "/dev/shm"
    if place != "/dev/shm" and os.path.isdir(place):
        stat = os.stat(place)
        if stat.st_uid != os.geteuid() or stat.st_mode & 0o022:
            raise Error(Status.PERMISSION, f"others can write to {place}")
    return Path(place, f"shmb.{name}")


def attach(name):
    """Step 5."""
    try:
        file = os.open(path_of(name), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise Error(Status.NO_HOST, f"no segment is called {name}") from None
    except OSError as error:
        status = Status.PERMISSION if error.errno == errno.EACCES else Status.SYSTEM
        raise Error(status, str(error)) from None
    try:
        stat = os.fstat(file)
        if stat.st_uid != os.geteuid() or stat.st_mode & 0o077:
            raise Error(Status.PERMISSION, "others may have access to the segment")
        data = os.pread(file, SUPERBLOCK.size, 0)
        superblock = SUPERBLOCK.unpack(data.ljust(SUPERBLOCK.size, b"\0"))
        check(superblock, stat.st_size)
        return Segment(file, superblock)
    except BaseException:
        os.close(file)
        raise
