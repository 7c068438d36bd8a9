/* One call of those below fails, as on a machine without memory, descriptors, space or processes.
 * By LD_PRELOAD: the Nth that a program named $SHMBRIDGE_FAULT_PROGRAM makes in code of ours, N
 * being $SHMBRIDGE_FAULT; its name is appended to $SHMBRIDGE_FAULT_LOG. By ld's --wrap, in a C test
 * that defines WRAPPED: the Nth of a thread. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef WRAPPED
#define COUNTED _Thread_local
#define SYMBOL "__wrap_"
#define NEXT(type, name, parameters)                                                               \
    extern type real_##name parameters __asm__("__real_" #name);                                   \
    static type(*next_##name(void)) parameters { return real_##name; }
static bool is_ours(void *caller) { return caller; }
static void tell(const char *name) { (void)name; }
#else
#define COUNTED
#define SYMBOL ""
#define NEXT(type, name, parameters)                                                               \
    static type(*next_##name(void)) parameters {                                                   \
        static type(*found) parameters;                                                            \
        return found ? found : (found = dlsym(RTLD_NEXT, #name));                                  \
    }
static bool is_ours(void *caller) {
    static const char *const ours[] = {"shmbridge", "_native"};
    Dl_info from;
    const char *name = dladdr(caller, &from) ? strrchr(from.dli_fname, '/') : NULL;
    for (int i = 0; name && i < 2; i++)
        if (strstr(name, ours[i])) return true;
    return false;
}

/* Without the functions below. */
static void tell(const char *name) {
    const char *path = getenv("SHMBRIDGE_FAULT_LOG");
    int flags = O_WRONLY | O_CREAT | O_APPEND,
        fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0600) : -1;
    if (fd < 0) return;
    syscall(SYS_write, fd, name, strlen(name));
    syscall(SYS_close, fd);
}
#endif

static COUNTED long left; /* calls up to the one that fails; 0: none does */
static COUNTED const char *failed;

/* From now on the Nth call fails, and no other. */
void faults_from(long n) {
    left = n;
    failed = NULL;
}

/* From now on none does. Returns the name of the call that did, or NULL. */
const char *faults_end(void) {
    left = 0;
    return failed;
}

static bool fails(const char *name, int error, void *caller) {
    if (!left || !is_ours(caller) || --left) return false;
    failed = name;
    tell(name);
    errno = error;
    return true;
}

#define FAULT(type, name, parameters, arguments, result, error)                                    \
    NEXT(type, name, parameters)                                                                   \
    type fault_##name parameters __asm__(SYMBOL #name);                                            \
    type fault_##name parameters {                                                                 \
        if (fails(#name, error, __builtin_return_address(0))) return result;                       \
        return next_##name() arguments;                                                            \
    }

FAULT(void *, malloc, (size_t n), (n), NULL, ENOMEM)
FAULT(void *, calloc, (size_t n, size_t each), (n, each), NULL, ENOMEM)
FAULT(void *, realloc, (void *old, size_t n), (old, n), NULL, ENOMEM)
FAULT(void *, aligned_alloc, (size_t of, size_t n), (of, n), NULL, ENOMEM)
FAULT(char *, strdup, (const char *text), (text), NULL, ENOMEM)
FAULT(int, vasprintf, (char **to, const char *format, va_list list), (to, format, list), -1, ENOMEM)
FAULT(void *, mmap, (void *at, size_t n, int prot, int flags, int fd, off_t from),
      (at, n, prot, flags, fd, from), MAP_FAILED, ENOMEM)
FAULT(int, mprotect, (void *at, size_t n, int prot), (at, n, prot), -1, ENOMEM)
FAULT(int, open, (const char *path, int flags, mode_t mode), (path, flags, mode), -1, EMFILE)
FAULT(FILE *, fopen, (const char *path, const char *mode), (path, mode), NULL, EMFILE)
FAULT(int, flock, (int fd, int how), (fd, how), -1, ENOLCK)
FAULT(int, inotify_init1, (int flags), (flags), -1, EMFILE)
FAULT(int, inotify_add_watch, (int fd, const char *path, uint32_t mask), (fd, path, mask), -1,
      ENOSPC)
FAULT(int, pipe2, (int *ends, int flags), (ends, flags), -1, EMFILE)
FAULT(int, memfd_create, (const char *name, unsigned flags), (name, flags), -1, EMFILE)
FAULT(int, eventfd, (unsigned n, int flags), (n, flags), -1, EMFILE)
FAULT(int, fcntl, (int fd, int command, void *with), (fd, command, with), -1, ENOLCK)
FAULT(int, fstat, (int fd, struct stat *to), (fd, to), -1, ENOMEM)
FAULT(ssize_t, read, (int fd, void *to, size_t n), (fd, to, n), -1, EINTR)
FAULT(ssize_t, pread, (int fd, void *to, size_t n, off_t at), (fd, to, n, at), -1, EIO)
FAULT(ssize_t, pwrite, (int fd, const void *from, size_t n, off_t at), (fd, from, n, at), -1,
      ENOSPC)
FAULT(ssize_t, write, (int fd, const void *from, size_t n), (fd, from, n), -1, ENOSPC)
FAULT(ssize_t, readlink, (const char *path, char *to, size_t n), (path, to, n), -1, ENOMEM)
FAULT(int, glob, (const char *all, int flags, int (*on)(const char *, int), glob_t *to),
      (all, flags, on, to), GLOB_NOSPACE, ENOMEM)
FAULT(pid_t, fork, (void), (), -1, EAGAIN)
FAULT(int, pthread_create,
      (pthread_t * to, const pthread_attr_t *as, void *(*f)(void *), void *with), (to, as, f, with),
      EAGAIN, 0)
FAULT(int, waitid, (idtype_t type, id_t id, siginfo_t *to, int options), (type, id, to, options),
      -1, EINTR)
FAULT(int, poll, (struct pollfd * fds, nfds_t n, int timeout), (fds, n, timeout), -1, EINTR)
FAULT(int, ppoll,
      (struct pollfd * fds, nfds_t n, const struct timespec *time, const sigset_t *mask),
      (fds, n, time, mask), -1, EINTR)
FAULT(int, nanosleep, (const struct timespec *time, struct timespec *rest), (time, rest), -1, EINTR)
FAULT(long, syscall, (long number, void *at, long a, long b, void *c, void *d, long e),
      (number, at, a, b, c, d, e), -1, EINTR)

#ifndef WRAPPED
__attribute__((constructor)) static void start(void) {
    const char *n = getenv("SHMBRIDGE_FAULT"), *program = getenv("SHMBRIDGE_FAULT_PROGRAM");
    if (n && program && strcmp(program, program_invocation_short_name) == 0) faults_from(atol(n));
}
#endif
