"""One end of a claimed channel: sends and receives messages."""

import os
import struct
from typing import NamedTuple

from .errors import Error, Status, require
from .message import LISTS, place, read_field, read_header, write_header
from .segment import fence, up

NEW, DIMS, INLINE, FAILED, BOUND = 1, 2, 4, 8, 16
NO_SLOT = 0xFF
DESCRIPTOR = struct.Struct("=QIIHBBBxH32s")  # all but the stamp


class Message(NamedTuple):
    sequence: int
    slot: int
    code: int
    fields: list  # none if it failed
    failure: str | None


class Link:
    """The side with number 0 is the runner's. It sends on lane 0 and receives on lane 1."""

    def __init__(self, segment, index, side, generation, owned, theirs, wake):
        self.segment, self.side, self.generation = segment, side, generation
        self.owned, self.theirs = set(owned), set(theirs)  # the slots that each side may send
        # Step 28: the host may return slots that an earlier runner sent.
        self.sent, self.taken = set(range(segment.slots)) - self.owned, set()
        self.wake = wake  # the peer's semaphore, and its word `asleep`
        self.position, self.layouts = [0, 0], [{}, {}]  # of both lanes
        ring = segment.channel(index) + 640
        self.rings = ring, ring + 64 * segment.slots
        first = segment.slot_offset + index * segment.slot_stride
        request_lane = segment.slots * (segment.meta[0] + segment.body[0]) + 64 + segment.meta[0]
        self.lanes = first, first + request_lane
        self.introduced = 0

    def _descriptor(self, lane):
        return self.rings[lane] + self.position[lane] % self.segment.slots * 64

    def _slot(self, lane, slot):
        """Where its meta and its body are. Step 1: slots from the third on may lack memory."""
        size = self.segment.meta[lane] + self.segment.body[lane]
        at = self.lanes[lane] + slot * size
        if slot >= 2:
            os.posix_fallocate(self.segment.file, at, size)
        return at, at + self.segment.meta[lane]

    # ---- Send ----

    def send(self, sequence, fields, returns, code=0):
        """Steps 11 to 15."""
        lane, known = self.side, self.layouts[self.side]
        layout = tuple(field[:4] for field in fields)
        dims = tuple(dim for field in fields for dim in field.dims)
        places, size = place(layout, dims)
        flags, data, meta = 0, b"", struct.pack(f"={len(dims)}q", *dims)
        number = next((i for i, (old, _) in known.items() if old == layout), None)
        if number is None:
            header = write_header(layout)
            flags, data, number = NEW, struct.pack("=I", len(header)), self.introduced % 16
            meta = header.ljust(up(len(header), 8), b"\0") + meta
        elif known[number][1] != dims:
            flags = DIMS
        if (flags and len(meta) > self.segment.meta[lane]) or size > self.segment.body[lane]:
            raise Error(Status.TOO_LARGE, f"{len(meta)} bytes of meta, {size} of body")
        body = bytearray(max(size, 32))
        for field, (_, offsets, values, end) in zip(fields, places, strict=True):
            struct.pack_into(f"={len(field.offsets)}q", body, offsets, *field.offsets)
            body[values:end] = field.values
        if lane == 1 and not flags and size <= 32:
            flags, slot, data = INLINE, NO_SLOT, bytes(body)
        else:
            slot = self._take_slot()
            meta_at, body_at = self._slot(lane, slot)
            if flags:
                self.segment.write(meta_at, meta)
            self.segment.write(body_at, body[:size])
        self.introduced += flags & NEW
        known[number] = layout, dims
        self.push(sequence, returns, number, slot, flags, code, 0, data)

    def fail(self, sequence, code, text, returns):
        """Step 19."""
        data = text.encode()[: min(65535, self.segment.body[self.side])]
        data = data.decode(errors="ignore").encode()  # without half a character at its end
        if len(data) <= 32:
            self.push(sequence, returns, 0, NO_SLOT, INLINE | FAILED, code, len(data), data)
            return
        slot = self._take_slot()
        self.segment.write(self._slot(self.side, slot)[1], data)
        self.push(sequence, returns, 0, slot, FAILED, code, len(data), b"")

    def _take_slot(self):
        require(self.owned, "no slot was returned")
        slot = min(self.owned)
        self.owned.remove(slot)
        self.sent.add(slot)
        return slot

    def push(self, sequence, returns, layout, slot, flags, code, text, data):
        at, mask = self._descriptor(self.side), sum(1 << slot for slot in returns)
        values = sequence, self.generation, mask, layout, slot, flags, code, text, data
        self.segment.write(at + 8, DESCRIPTOR.pack(*values))
        self.theirs |= returns
        self.taken -= returns
        self.position[self.side] += 1
        self.segment.store64(at, self.position[self.side])
        fence()
        semaphore, asleep = self.wake
        if self.segment.load(asleep):
            semaphore.post()

    # ---- Receive ----

    def waiting(self):
        """Whether a message waits to be taken."""
        lane = 1 - self.side
        return self.segment.load64(self._descriptor(lane)) == self.position[lane] + 1

    def take(self):
        """Steps 16 and 17. Raises Violation."""
        lane = 1 - self.side
        values = DESCRIPTOR.unpack(self.segment.read(self._descriptor(lane) + 8, DESCRIPTOR.size))
        sequence, generation, returns, number, slot, flags, code, text, data = values
        require(generation == self.generation, f"generation {generation}")
        require(not flags & ~(31 if lane else NEW | DIMS | BOUND), f"flags {flags:#x}")
        require((slot == NO_SLOT) == bool(flags & INLINE), "INLINE means that there is no slot")
        require(slot == NO_SLOT or slot in self.theirs, f"slot {slot} is not the sender's")
        returned = {bit for bit in range(32) if returns >> bit & 1}
        require(returned <= self.sent, f"returns {returns:#x}")
        require(code <= (21 if lane else 13), f"code {code}")
        meta, capacity, fields, failure = b"", 32, [], None
        if slot != NO_SLOT:
            (meta_at, body_at), capacity = self._slot(lane, slot), self.segment.body[lane]
            meta = self.segment.read(meta_at, self.segment.meta[lane])
        if flags & FAILED:
            require(text <= capacity, "the text does not fit")
            body = data if slot == NO_SLOT else self.segment.read(body_at, text)
            failure = body[:text].decode(errors="replace")
        else:
            require(number < 16, f"layout {number}")
            layout, dims = self._learn(self.layouts[lane].get(number), flags, data, meta)
            places, size = place(layout, dims)
            require(size <= capacity, "the body does not fit")
            body = data if slot == NO_SLOT else self.segment.read(body_at, size)
            fields = [read_field(body, *where) for where in places]
            self.layouts[lane][number] = layout, dims
        self.position[lane] += 1
        self.owned |= returned
        self.sent -= returned
        if slot != NO_SLOT:
            self.theirs.remove(slot)
            self.taken.add(slot)
        return Message(sequence, slot, code, fields, failure)

    @staticmethod
    def _learn(known, flags, data, meta):
        """The layout and the dims of a message."""
        require(meta or not flags & (NEW | DIMS), "NEW and DIMS require a slot")
        if flags & NEW:
            size = struct.unpack_from("=I", data)[0]
            require(size <= len(meta), "the header does not fit")
            layout, meta = read_header(meta[:size]), meta[up(size, 8) :]
        else:
            require(known, "the layout was not introduced")
            layout, dims = known
        if flags & (NEW | DIMS):
            count = sum(rank + (kind in LISTS) for _, _, kind, rank in layout)
            require(8 * count <= len(meta), "the dims do not fit")
            dims = struct.unpack_from(f"={count}q", meta)
        return layout, dims
