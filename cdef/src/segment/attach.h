/* The segment as one process has it: mapped, checked, and described by private copies of its
 * geometry. */
#ifndef SHMB_ATTACH_H
#define SHMB_ATTACH_H

#include "base/error.h"
#include "process/fork.h"
#include "segment/channel.h"

struct segment {
    int fd;
    void *base;
    size_t size;
    struct superblock block; /* the private copy */
    struct inherited inherited;
};

/* Fills in where everything lies, and the size, by the channels, slots and bytes that *b has; false
 * when these cannot be. */
bool shmb_segment_plan(struct superblock *b);
/* Maps fd, a new file of plan->size bytes that only we know, and writes the superblock. Takes fd
 * over on success. */
shmb_status shmb_segment_format(int fd, const struct superblock *plan, struct segment *out,
                                struct error *e);
/* Opens and maps the segment of a name's worker (0: the first or only one), and checks all of it:
 * owner, mode, size, magic, version, geometry. Errors: NO_HOST (no such name), PERMISSION,
 * INCOMPATIBLE, CORRUPT, SYSTEM. */
shmb_status shmb_segment_attach(const char *name, uint32_t worker, struct segment *out,
                                struct error *e);
/* The same for a file that is open already and stays so; fork does not know of it. False with the
 * error set. */
bool shmb_segment_read(int fd, const char *name, struct segment *out, struct error *e);
/* Closes the file, and with it drops every lock taken through it. The mapping stays. */
void shmb_segment_unlock(struct segment *s);
void shmb_segment_detach(struct segment *s);

struct semaphore *shmb_segment_host_semaphore(const struct segment *s);
struct host_line *shmb_segment_host_line(const struct segment *s);
struct runner_line *shmb_segment_runner_line(const struct segment *s, uint32_t channel);
struct label *shmb_segment_label(const struct segment *s, uint32_t channel);
struct channel_line *shmb_segment_channel_line(const struct segment *s, uint32_t channel);
/* Reserves memory for the segment that is planned in *b and lies in fd, so that no store fails
 * later; but each lane's slots from the third on get theirs at first use. Returns an errno;
 * *needed: how many bytes that takes. fd < 0: only counts them. */
int shmb_segment_reserve(int fd, const struct superblock *b, uint64_t *needed);
struct lane shmb_segment_lane(const struct segment *s, uint32_t channel, int direction);
/* Reserves the memory of a slot; false: /dev/shm is full. */
__attribute__((cold)) bool shmb_lane_back(struct lane *l, uint32_t slot);
/* The same for the first slot without memory, which is returned; -1: none, or /dev/shm is full. */
__attribute__((cold)) int shmb_lane_grow(struct lane *l);
/* A private copy of a runner's label, into out[LABEL_BYTES + 1]. */
void shmb_label_copy(const struct label *said, char *out);
/* Hexadecimal, into out[2 * SESSION_BYTES + 1]. */
void shmb_session_text(const uint8_t *session, char *out);

#endif
