#include "command/build.h"

#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "command/compilers.h"
#include "runner/nonblocking.h"

const char shmb_build_warning[] =
    "shmbridge: compiling without the policy (reported once per build): %s\n";

/* ---- The processes that started this one ---- */

struct process {
    pid_t parent;
    unsigned long long start; /* clock ticks after the boot: tells processes of one id apart */
    char program[PATH_MAX];
};

/* False: there is no such process any more, or it is another user's. */
static bool look_at(pid_t pid, struct process *p) {
    char path[64], stat[1024];
    snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
    ssize_t n = readlink(path, p->program, sizeof p->program - 1);
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = n < 0 ? NULL : fopen(path, "re");
    if (!file) return false;
    p->program[n] = 0;
    stat[fread(stat, 1, sizeof stat - 1, file)] = 0;
    fclose(file);
    const char *end = strrchr(stat, ')'); /* behind the name, which may hold anything */
    return end && sscanf(end + 1,
                         " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d"
                         " %*d %*d %llu",
                         &p->parent, &p->start) == 2;
}

const char *shmb_build_cache(void) {
    struct process p;
    for (pid_t pid = getppid(); pid > 1 && look_at(pid, &p); pid = p.parent) {
        const char *cache = shmb_listed(shmb_caches, shmb_file_name(p.program));
        if (cache) return cache;
    }
    return NULL;
}

/* ---- Notes of earlier failures ---- */

/* One for a policy in a build. Where two share a place, the later one stays, and the other build is
 * warned again. */
struct note {
    uint64_t build;
    int64_t late;    /* when the policy was late last, 0: never */
    int64_t useless; /* when it gave no advice last */
    uint64_t times;  /* how often in a row */
};
enum { NOTES = 64, REST_SECONDS = 60, USELESS_TIMES = 3 };

static uint64_t hash(uint64_t h, const void *bytes, size_t size) { /* FNV-1a */
    for (const uint8_t *at = bytes; size--; at++) h = (h ^ *at) * 0x100000001b3;
    return h;
}

static uint64_t build_of(const char *policy) {
    struct process p, outermost = {0};
    pid_t id = 0;
    for (pid_t pid = getppid(); pid > 1 && look_at(pid, &p); pid = p.parent)
        if (shmb_listed(shmb_build_tools, shmb_file_name(p.program))) id = pid, outermost = p;
    if (!id && !look_at(id = getpgrp(), &outermost)) outermost.start = 0;
    uint64_t h = hash(0xcbf29ce484222325, policy, strlen(policy));
    h = hash(h, &id, sizeof id);
    return hash(h, &outermost.start, sizeof outermost.start);
}

/* A note takes microseconds to read and write. A process that holds the lock for longer was
 * stopped, and the worst that can happen without it is a second warning. */
static void lock_notes(int fd) {
    for (int tries = 20; flock(fd, LOCK_EX | LOCK_NB) && tries; tries--)
        shmb_sleep(SECOND_NS / 1000);
}

/* The user's notes; -1: they cannot be used. */
static int open_notes(int create) {
    const char *folder = getenv("XDG_RUNTIME_DIR");
    char path[PATH_MAX];
    struct stat file;
    snprintf(path, sizeof path, "%s/.shmbridge-builds-%u", folder && *folder ? folder : "/tmp",
             (unsigned)getuid());
    int fd = open(path, O_RDWR | create | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return -1;
    if (!fstat(fd, &file) && S_ISREG(file.st_mode) && file.st_uid == getuid()) {
        lock_notes(fd);
        return fd;
    }
    close(fd);
    return -1;
}

static off_t place_of(const struct note *n) { return (off_t)(n->build % NOTES * sizeof *n); }

/* Is there a note of this build? Gets it, or an empty one. */
static bool read_note(int fd, const char *policy, struct note *out) {
    struct note found, none = {.build = build_of(policy)};
    bool ours = pread(fd, &found, sizeof found, place_of(&none)) == sizeof found &&
                found.build == none.build;
    *out = ours ? found : none;
    return ours;
}

static bool write_note(int fd, const struct note *n) {
    return pwrite(fd, n, sizeof *n, place_of(n)) == sizeof *n;
}

bool shmb_build_failed(const char *policy, enum shmb_build_failure kind) {
    struct note n;
    int fd = open_notes(O_CREAT);
    bool known = read_note(fd, policy, &n);
    if (kind == SHMB_BUILD_LATE) n.late = shmb_clock_ns();
    if (kind == SHMB_BUILD_USELESS) n.useless = shmb_clock_ns(), n.times++;
    known &= write_note(fd, &n);
    if (fd >= 0) close(fd);
    return !known;
}

void shmb_build_worked(const char *policy) {
    struct note n;
    int fd = open_notes(0);
    bool known = read_note(fd, policy, &n);
    if (known && n.times) {
        n.times = 0;
        write_note(fd, &n);
    }
    if (fd >= 0) close(fd);
}

static bool within_rest(int64_t time) {
    return time && shmb_clock_ns() - time < (int64_t)REST_SECONDS * SECOND_NS;
}

/* ---- Before a compilation ---- */

bool shmb_build_asks(const char *policy, const char *url, char why[SHMB_WHY_BYTES]) {
    static const double moment = 0.05;
    const char *scheme = url ? strstr(url, "://") : NULL;
    bool local = url && (!scheme || strncmp(url, "shm://", 6) == 0);
    struct note n;
    int fd = open_notes(0);
    read_note(fd, policy, &n);
    if (fd >= 0) close(fd);
    bool late = within_rest(n.late), useless = n.times >= USELESS_TIMES && within_rest(n.useless);
    if (useless || (late && !local)) {
        snprintf(why, SHMB_WHY_BYTES, "the policy %s less than %d s ago",
                 useless ? "gave no advice to the files compiled" : "was late", REST_SECONDS);
        return false;
    }
    if (!local || strstr(url, "connect_timeout=")) return true;
    double timeout;
    shmb_runner *r;
    shmb_status status = shmb_open_slice(url, NULL, moment, &timeout, &r);
    snprintf(why, SHMB_WHY_BYTES, "%s", shmb_error_message(r));
    shmb_close(r);
    return status == SHMB_OK || status == SHMB_BUSY || (status == SHMB_TIMEOUT && !late);
}
