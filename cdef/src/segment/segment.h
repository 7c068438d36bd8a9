/* The segment's bytes: the wire format and nothing else. docs/protocol.md draws it, and numbers the
 * protocol's steps.
 *
 * What nobody needs to speak the protocol is a hint: pids, places, labels, times and last layouts.
 * Whoever reads one bounds it, and a lie in it costs nothing but itself.
 *
 * Different sides write to different blocks of 128 bytes (adjacent-line prefetch), except that a
 * last request may end in the block in which reply slot 0 begins. */
#ifndef SHMB_SEGMENT_H
#define SHMB_SEGMENT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "segment/limits.h"
#include "segment/semaphore.h"

#define SEGMENT_MAGIC 0x0031474452424d48ull /* "HMBRDG1\0" */
#define SEGMENT_VERSION 3u
#define SEGMENT_FEATURES                                                                           \
    0u /* no optional features yet: a set bit that a runner does not know is a refusal */

enum {
    MAX_SLOTS = 32,   /* per direction: a slot set is a 32-bit mask */
    MAX_LAYOUTS = 16, /* layout ids per channel and direction */
    INLINE_BYTES = 32,
    REASON_BYTES = 176,
    LABEL_BYTES = 252,
    ASKED_EVERY = 16, /* a runner writes `since` at each such question, too */
    NO_SLOT = 0xff
};

enum { REQUEST = 0, REPLY = 1 }; /* directions */

/* Descriptor flags. */
enum {
    /* data[0..4): u32 bytes of the header that starts the slot's meta; forget what this layout id
     * meant */
    NEW = 1,
    DIMS = 2,   /* meta holds dims; else they are as in the last message of this layout */
    INLINE = 4, /* the body is in the descriptor, and slot is NO_SLOT */
    /* a reply without advice: code is the status, the body (inline or in the slot) its text */
    FAILED = 8,
    BOUND = 16, /* the runner writes this slot again without asking: copy what must stay */
    ALL_FLAGS = 31
};

/* One cache line that carries its own stamp: fill, then store stamp = position + 1 with release
 * order. */
struct descriptor {
    _Atomic uint64_t stamp;
    uint64_t sequence;   /* the question's number, echoed by its reply */
    uint32_t generation; /* of the claim; another one is refused */
    uint32_t returns;    /* slots of the opposite direction that are their owner's again */
    uint16_t layout;     /* layout id */
    uint8_t slot;        /* or NO_SLOT */
    uint8_t flags;
    uint8_t code; /* request: dtype wanted back; failed reply: shmb_status */
    uint8_t reserved;
    uint16_t text; /* failed reply: bytes of text */
    uint8_t data[INLINE_BYTES];
};
_Static_assert(sizeof(struct descriptor) == 64, "a descriptor is one cache line");
_Static_assert(offsetof(struct descriptor, stamp) == 0, "wire format");
_Static_assert(offsetof(struct descriptor, sequence) == 8, "wire format");
_Static_assert(offsetof(struct descriptor, generation) == 16, "wire format");
_Static_assert(offsetof(struct descriptor, returns) == 20, "wire format");
_Static_assert(offsetof(struct descriptor, layout) == 24, "wire format");
_Static_assert(offsetof(struct descriptor, slot) == 26, "wire format");
_Static_assert(offsetof(struct descriptor, flags) == 27, "wire format");
_Static_assert(offsetof(struct descriptor, code) == 28, "wire format");
_Static_assert(offsetof(struct descriptor, reserved) == 29, "wire format");
_Static_assert(offsetof(struct descriptor, text) == 30, "wire format");
_Static_assert(offsetof(struct descriptor, data) == 32, "wire format");

struct superblock {
    uint64_t magic;
    uint32_t version;
    uint32_t features;
    uint64_t size; /* of the whole segment, bytes */
    uint8_t session[SESSION_BYTES];
    uint32_t channels;
    uint32_t slots;         /* per channel and direction, a power of two */
    uint64_t meta_bytes[2]; /* per slot, by direction; multiples of ALIGNMENT */
    uint64_t body_bytes[2];
    uint64_t channel_offset; /* channel i's lines begin at channel_offset + i * channel_stride */
    uint64_t channel_stride;
    uint64_t slot_offset; /* channel i's slots begin at slot_offset + i * slot_stride */
    uint64_t slot_stride;
    uint8_t unused[128 - 112];
};
_Static_assert(sizeof(struct superblock) == 128, "wire format");
_Static_assert(offsetof(struct superblock, magic) == 0, "wire format");
_Static_assert(offsetof(struct superblock, version) == 8, "wire format");
_Static_assert(offsetof(struct superblock, features) == 12, "wire format");
_Static_assert(offsetof(struct superblock, size) == 16, "wire format");
_Static_assert(offsetof(struct superblock, session) == SESSION_AT, "wire format");
_Static_assert(offsetof(struct superblock, channels) == 40, "wire format");
_Static_assert(offsetof(struct superblock, slots) == 44, "wire format");
_Static_assert(offsetof(struct superblock, meta_bytes) == 48, "wire format");
_Static_assert(offsetof(struct superblock, body_bytes) == 64, "wire format");
_Static_assert(offsetof(struct superblock, channel_offset) == 80, "wire format");
_Static_assert(offsetof(struct superblock, channel_stride) == 88, "wire format");
_Static_assert(offsetof(struct superblock, slot_offset) == 96, "wire format");
_Static_assert(offsetof(struct superblock, slot_stride) == 104, "wire format");

/* Where and since when a side waits: a hint for the other side's waiting, and for `inspect`. A wait
 * that ends before it reads the clock leaves no trace; so see ASKED_EVERY. */
struct wait_hint {
    _Atomic uint64_t cpus;  /* that it may run on: bit i for the CPUs i, i + 64, ... */
    _Atomic uint64_t since; /* when it last began to wait, CLOCK_MONOTONIC ns */
    _Atomic uint32_t cpu;   /* the one that it then ran on */
    uint32_t unused;
};
_Static_assert(sizeof(struct wait_hint) == 24, "wire format");
_Static_assert(offsetof(struct wait_hint, since) == 8, "wire format");
_Static_assert(offsetof(struct wait_hint, cpu) == 16, "wire format");

struct host_line {
    _Atomic uint32_t asleep;
    _Atomic uint32_t closed;
    uint32_t pid;             /* for `shmbridge ls` only: never trusted */
    _Atomic uint32_t runners; /* how many are attached: a hint */
    /* how long an answer may take, ns; 0: the default; UINT64_MAX: as long as the host lives */
    _Atomic uint64_t deadline;
    _Atomic uint32_t workers; /* how many hosts share the name: a hint; 0: one */
    /* keeps wait_hint, which changes at every other wait, out of the cache line of the words above,
     * which runners read */
    uint8_t between[128 - 28];
    struct wait_hint wait_hint;
    uint8_t unused[256 - 128 - 24];
};
_Static_assert(sizeof(struct host_line) == 256, "wire format");
_Static_assert(offsetof(struct host_line, asleep) == 0, "wire format");
_Static_assert(offsetof(struct host_line, closed) == 4, "wire format");
_Static_assert(offsetof(struct host_line, pid) == 8, "wire format");
_Static_assert(offsetof(struct host_line, runners) == 12, "wire format");
_Static_assert(offsetof(struct host_line, deadline) == 16, "wire format");
_Static_assert(offsetof(struct host_line, workers) == 24, "wire format");
_Static_assert(offsetof(struct host_line, wait_hint) == 128, "wire format");

/* claim and ready hold generation << 8 | state. */
enum { FREE = 0, CLAIMED = 1, READY = 2, POISONED = 3 };

struct runner_line {
    _Atomic uint64_t claim; /* FREE or CLAIMED */
    uint64_t unused_before;
    _Atomic uint32_t asleep;
    uint32_t pid; /* a hint */
    uint8_t between[64 - 24];
    struct wait_hint wait_hint;
    uint8_t unused[128 - 64 - 24];
};
_Static_assert(sizeof(struct runner_line) == 128, "wire format");
_Static_assert(offsetof(struct runner_line, claim) == 0, "wire format");
_Static_assert(offsetof(struct runner_line, asleep) == 16, "wire format");
_Static_assert(offsetof(struct runner_line, pid) == 20, "wire format");
_Static_assert(offsetof(struct runner_line, wait_hint) == 64, "wire format");

/* What the runner is about: a source file's name, say. Written before the claim. */
struct label {
    uint32_t bytes;
    char text[LABEL_BYTES]; /* UTF-8 */
};
_Static_assert(sizeof(struct label) == 256, "wire format");
_Static_assert(offsetof(struct label, text) == 4, "wire format");

struct channel_line {
    _Atomic uint64_t ready; /* READY or POISONED, of the generation that the host has seen */
    uint32_t free_slots;    /* request slots that the runner owns at READY */
    uint32_t reason_bytes;
    _Atomic uint64_t served; /* replies so far, for `shmbridge ls` */
    uint64_t unused_before;
    char reason[REASON_BYTES];  /* why POISONED; UTF-8 */
    struct semaphore semaphore; /* wakes the runner */
    uint8_t unused[256 - 36 - REASON_BYTES];
};
_Static_assert(sizeof(struct channel_line) == 256, "wire format");
_Static_assert(offsetof(struct channel_line, free_slots) == 8, "wire format");
_Static_assert(offsetof(struct channel_line, reason_bytes) == 12, "wire format");
_Static_assert(offsetof(struct channel_line, served) == 16, "wire format");
_Static_assert(offsetof(struct channel_line, ready) == 0, "wire format");
_Static_assert(offsetof(struct channel_line, reason) == 32, "wire format");
_Static_assert(offsetof(struct channel_line, semaphore) == 208, "wire format");

/* In front of a copy of the meta that the lane's last NEW message had, with the dims of the last
 * message: meta_bytes of it. */
struct last_layout {
    _Atomic uint64_t version; /* odd while it is written; 0: no message yet */
    uint32_t header_bytes, dims;
    uint8_t unused[64 - 16];
};
_Static_assert(sizeof(struct last_layout) == 64, "wire format");
_Static_assert(offsetof(struct last_layout, header_bytes) == 8, "wire format");
_Static_assert(offsetof(struct last_layout, dims) == 12, "wire format");

/* In meta, dims lie behind their header. */
static inline size_t dims_at(size_t header_bytes) { return (header_bytes + 7) & ~(size_t)7; }

#endif
