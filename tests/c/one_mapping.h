/* Under ThreadSanitizer host and runner share one mapping of the segment: it sees who orders whom
 * by addresses, so two mappings of the same bytes would hide every race and invent others. Replaces
 * the two files of the library that map by copies of its own. */
#ifndef ONE_MAPPING_H
#define ONE_MAPPING_H

#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAPPINGS = 64 };

static pthread_mutex_t mappings_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
    ino_t file;
    pid_t process; /* a forked child maps anew */
    void *base;
    int users;
} mappings[MAPPINGS];

static inline void *map_once(void *at, size_t size, int protection, int flags, int fd,
                             off_t offset) {
    struct stat st;
    void *base = MAP_FAILED;
    if (fstat(fd, &st) != 0) return base;
    pthread_mutex_lock(&mappings_mutex);
    int i = 0;
    while (i < MAPPINGS &&
           !(mappings[i].users && mappings[i].file == st.st_ino && mappings[i].process == getpid()))
        i++;
    if (i == MAPPINGS) {
        for (i = 0; mappings[i].users; i++) continue;
        mappings[i].process = getpid();
        mappings[i].base = mmap(at, size, protection, flags, fd, offset);
        mappings[i].file = st.st_ino;
    }
    if (mappings[i].base != MAP_FAILED) mappings[i].users++;
    base = mappings[i].base;
    pthread_mutex_unlock(&mappings_mutex);
    return base;
}

static inline int unmap_once(void *base, size_t size) {
    pthread_mutex_lock(&mappings_mutex);
    for (int i = 0; i < MAPPINGS; i++)
        if (mappings[i].users && mappings[i].base == base && --mappings[i].users == 0)
            munmap(base, size);
    pthread_mutex_unlock(&mappings_mutex);
    return 0;
}

#define mmap map_once
#define munmap unmap_once
#include "segment/attach.c"
#include "segment/inspect.c"
#undef mmap
#undef munmap

#endif
