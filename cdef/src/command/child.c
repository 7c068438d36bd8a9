#include "command/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NO_COMPILER = 127, CHUNK = 1 << 16, LOOK_MS = 100, REST = 1 << 20 };

/* ---- Streams ---- */

static bool write_all(int to, const char *bytes, ssize_t size) {
    while (size > 0) {
        ssize_t n = write(to, bytes, (size_t)size);
        if (n < 0 && errno != EINTR) return false;
        if (n > 0) bytes += n, size -= n;
    }
    return true;
}

/* All that is left to read. */
static bool copy(int from, int to) {
    char bytes[CHUNK];
    for (;;) {
        ssize_t n = read(from, bytes, sizeof bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n == 0;
        if (!write_all(to, bytes, n)) return false;
    }
}

int shmb_unnamed_file(void) {
    const char *folder = getenv("TMPDIR");
    int fd = memfd_create("shmbridge", MFD_CLOEXEC); /* a sandbox may refuse it */
    if (fd >= 0) return fd;
    return open(folder && *folder ? folder : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

static bool is_same(int one, int other) {
    struct stat a, b;
    return !fstat(one, &a) && !fstat(other, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Nobody can hold back a stream that is closed. */
static bool is_held(int fd) { return !isatty(fd) && errno != EBADF; }

bool shmb_streams_hold(struct streams *s, bool reads_stdin) {
    *s = (struct streams){-1, -1, -1, {-1, -1}, is_same(1, 2)};
    if (reads_stdin && ((s->in = shmb_unnamed_file()) < 0 || !copy(0, s->in))) return false;
    if (is_held(1) && ((s->out = shmb_unnamed_file()) < 0 || pipe2(s->pipe, O_CLOEXEC)))
        return false;
    bool more = is_held(2) && !s->merged;
    if (more && (s->err = shmb_unnamed_file()) >= 0) fcntl(s->err, F_SETFL, O_APPEND);
    return !more || s->err >= 0;
}

static void deliver(int from, int to) {
    if (from < 0) return;
    lseek(from, 0, SEEK_SET);
    copy(from, to);
}

void shmb_streams_deliver(const struct streams *s) {
    deliver(s->out, 1);
    deliver(s->err, 2);
}

/* ---- Signals ---- */

static const int FORWARDED[] = {SIGINT, SIGTERM, SIGHUP};
enum { FORWARDED_COUNT = sizeof FORWARDED / sizeof *FORWARDED };
static volatile pid_t compiler;
static volatile sig_atomic_t signalled;

bool shmb_child_signalled(void) { return signalled; }

static void forward(int number) {
    signalled = true;
    if (compiler) kill(compiler, number);
}

/* Those that nohup and its like have told this process to ignore stay so. */
static void forward_signals(struct sigaction old[FORWARDED_COUNT]) {
    struct sigaction new = {.sa_handler = forward};
    for (int i = 0; i < FORWARDED_COUNT; i++)
        if (sigaction(FORWARDED[i], NULL, &old[i]) == 0 && old[i].sa_handler != SIG_IGN)
            sigaction(FORWARDED[i], &new, NULL);
}

/* ---- A child ---- */

static void connect_streams(const struct streams *s, bool held) {
    if (s->in >= 0) {
        lseek(s->in, 0, SEEK_SET);
        dup2(s->in, 0);
    }
    if (held && s->pipe[1] >= 0) dup2(s->pipe[1], 1);
    if (held && s->merged && s->pipe[1] >= 0) dup2(s->pipe[1], 2);
    if (held && s->err >= 0) dup2(s->err, 2);
}

static _Noreturn void start(char *const *command, char *const *environment, struct streams *s,
                            bool held, pid_t parent, const sigset_t *mask) {
    for (int i = 0; i < FORWARDED_COUNT; i++) { /* Python's handlers are not the compiler's */
        struct sigaction now;
        if (sigaction(FORWARDED[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            signal(FORWARDED[i], SIG_DFL);
    }
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    connect_streams(s, held);
    sigprocmask(SIG_SETMASK, mask, NULL);
    if (getppid() == parent) execvpe(command[0], command, environment);
    fprintf(stderr, "shmbridge: %s: %s\n", command[0], strerror(errno));
    _exit(NO_COMPILER);
}

static bool has_ended(pid_t child, int options) {
    siginfo_t ended = {0};
    while (waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT | options) < 0)
        if (errno != EINTR) return true;
    return ended.si_pid;
}

/* Reads what the child prints until nobody can print any more, or the child has ended and what it
 * has left behind, which may live on, is silent or goes on and on. */
static void drain(pid_t child, const struct streams *s) {
    char bytes[CHUNK];
    struct pollfd from = {.fd = s->pipe[0], .events = POLLIN};
    ssize_t rest = REST;
    while (rest > 0) {
        bool ended = has_ended(child, WNOHANG);
        int ready = poll(&from, 1, ended ? 0 : LOOK_MS);
        if (ready == 0 && ended) return;
        ssize_t n = ready > 0 ? read(s->pipe[0], bytes, sizeof bytes) : -1;
        if (n == 0) return;
        if (n > 0) write_all(s->out, bytes, n);
        if (n > 0 && ended) rest -= n;
    }
}

/* Signals go to the child until it is reaped and its id may be another's. */
static int wait_for(pid_t child, const sigset_t *forwarded) {
    sigset_t old;
    int status = -1;
    has_ended(child, 0);
    sigprocmask(SIG_BLOCK, forwarded, &old);
    waitpid(child, &status, 0);
    compiler = 0;
    sigprocmask(SIG_SETMASK, &old, NULL);
    return status;
}

int shmb_child_run(char *const *command, char *const *environment, struct streams *s, bool held) {
    pid_t parent = getpid();
    sigset_t forwarded, old;
    struct sigaction handlers[FORWARDED_COUNT];
    int status = -1;
    sigemptyset(&forwarded);
    for (int i = 0; i < FORWARDED_COUNT; i++) sigaddset(&forwarded, FORWARDED[i]);
    sigprocmask(SIG_BLOCK, &forwarded, &old);
    pid_t child = fork();
    if (child == 0) start(command, environment, s, held, parent, &old);
    int error = errno;
    compiler = child > 0 ? child : 0;
    forward_signals(handlers);
    sigprocmask(SIG_SETMASK, &old, NULL);
    if (held && s->pipe[1] >= 0) {
        close(s->pipe[1]);
        s->pipe[1] = -1;
        if (child > 0) drain(child, s);
        close(s->pipe[0]);
    }
    if (child > 0) status = wait_for(child, &forwarded);
    for (int i = 0; i < FORWARDED_COUNT; i++) sigaction(FORWARDED[i], &handlers[i], NULL);
    errno = error;
    return status;
}

int shmb_child_become(char *const *command, const struct streams *s) {
    connect_streams(s, false);
    execvp(command[0], command);
    fprintf(stderr, "shmbridge: %s: %s\n", command[0], strerror(errno));
    return NO_COMPILER;
}
