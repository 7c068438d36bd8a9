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

enum { NO_COMPILER = 127, CHUNK = 1 << 16, LOOK_MS = 100, START_SECONDS = 60, REST = 1 << 20 };

/* ---- Streams ---- */

/* Returns how many bytes could not be written, with errno. */
static ssize_t write_all(int to, const char *bytes, ssize_t size) {
    while (size > 0) {
        ssize_t n = write(to, bytes, (size_t)size);
        if (n < 0 && errno != EINTR) break;
        if (n > 0) bytes += n, size -= n;
    }
    return size;
}

/* What was read last; of it, the last `left` bytes could not be written. */
static struct chunk {
    char bytes[CHUNK];
    ssize_t size, left;
} last;

/* Copies up to the end of the input. False: not all of it, and `last` has the rest. */
static bool copy(int from, int to) {
    do {
        last.size = read(from, last.bytes, CHUNK);
        last.left = last.size > 0 ? write_all(to, last.bytes, last.size) : 0;
    } while (!last.left && (last.size > 0 || (last.size < 0 && errno == EINTR)));
    return last.size == 0;
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

static bool hold(struct held *h, int fd) {
    *h = (struct held){{-1, -1}, -1};
    if (isatty(fd) || errno == EBADF) return true;
    return (h->kept = shmb_unnamed_file()) >= 0 && pipe2(h->pipe, O_CLOEXEC) == 0;
}

bool shmb_streams_hold(struct streams *s) {
    s->merged = is_same(1, 2);
    s->err = (struct held){{-1, -1}, -1};
    return hold(&s->out, 1) && (s->merged || hold(&s->err, 2));
}

static bool opens_once(const char *path, struct stat *file) {
    if (stat(path, file)) return false;
    int fd = S_ISCHR(file->st_mode) ? open(path, O_RDONLY | O_NOCTTY | O_CLOEXEC) : -1;
    bool terminal = fd >= 0 && isatty(fd);
    if (fd >= 0) close(fd);
    return terminal || S_ISFIFO(file->st_mode) || S_ISSOCK(file->st_mode);
}

/* Puts a pipe in a descriptor's place, which brings what was read of it, and the rest. */
static void give_back(int fd, int kept) {
    int ends[2], child = pipe2(ends, O_CLOEXEC) ? -1 : fork();
    if (child < 0) perror("shmbridge: the source was read, and cannot be read again");
    if (child < 0) _exit(EXIT_FAILURE);
    if (child == 0) {
        struct chunk end = last;
        close(ends[0]);
        lseek(kept, 0, SEEK_SET);
        if (copy(kept, ends[1]) && !write_all(ends[1], end.bytes + end.size - end.left, end.left))
            copy(fd, ends[1]);
        _exit(EXIT_SUCCESS);
    }
    dup2(ends[0], fd);
    close(ends[0]);
    close(ends[1]);
}

/* Reads a descriptor to its end, and puts what was read in its place. */
static bool keep(int fd) {
    int kept = shmb_unnamed_file();
    bool done = kept >= 0 && copy(fd, kept) && dup2(kept, fd) >= 0;
    if (last.left) give_back(fd, kept);
    if (kept >= 0) close(kept);
    return done;
}

/* Our descriptor of a file that can be opened once; -1: none. */
static int descriptor_of(const struct stat *file) {
    struct stat own;
    for (int fd = 0; fd < 256; fd++)
        if (!fstat(fd, &own) && own.st_dev == file->st_dev && own.st_ino == file->st_ino) return fd;
    return -1;
}

bool shmb_streams_keep(struct streams *s, char *const *command, bool reads, const char **word) {
    struct stat file;
    for (s->reads = reads; *++command;) {
        bool output = strcmp(command[-1], "-o") == 0 || strncmp(*command, "-o", 2) == 0;
        *word = *command + (strncmp(*command, "-o", 2) == 0 ? 2 : **command == '@');
        if (**word == '-' && strchr(*word, '/')) *word = strchr(*word, '/'); /* --flag=/file */
        s->reads |= !output && strcmp(*word, "-") == 0;
        if (**word == '-' || !opens_once(*word, &file)) continue;
        int fd = descriptor_of(&file);
        if (fd == 1 || fd == 2) continue; /* they are held back */
        if (fd < 0 || output || (fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY) return false;
        if (fd == 0) s->reads = true;
        else if (!keep(fd)) return false;
    }
    *word = "stdin";
    return !s->reads || keep(0);
}

static bool deliver(int from, int to) {
    return from < 0 || (lseek(from, 0, SEEK_SET) == 0 && copy(from, to));
}

bool shmb_streams_deliver(const struct streams *s) {
    void (*ours)(int) = signal(SIGPIPE, SIG_DFL); /* a compiler ends where nobody reads */
    bool all = deliver(s->out.kept, 1) & deliver(s->err.kept, 2);
    signal(SIGPIPE, ours);
    return all;
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

static void connect_streams(const struct streams *s, enum child_kind kind) {
    if (s->reads) lseek(0, 0, SEEK_SET);
    if (kind != HELD_COMPILER) return;
    int err = s->merged ? s->out.pipe[1] : s->err.pipe[1];
    if (s->out.pipe[1] >= 0) dup2(s->out.pipe[1], 1);
    if (err >= 0) dup2(err, 2);
}

static void become(char *const *command, char *const *environment) {
    signal(SIGPIPE, SIG_DFL); /* Python ignores both */
    signal(SIGXFSZ, SIG_DFL);
    execvpe(command[0], command, environment);
    fprintf(stderr, "shmbridge: %s: %s\n", command[0], strerror(errno));
}

static _Noreturn void start(char *const *command, char *const *environment, enum child_kind kind,
                            const struct streams *s, pid_t parent, sigset_t *mask) {
    for (int i = 0; i < FORWARDED_COUNT; i++) { /* Python's handlers are not the compiler's */
        struct sigaction now;
        if (sigaction(FORWARDED[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            signal(FORWARDED[i], SIG_DFL);
    }
    prctl(PR_SET_PDEATHSIG, kind == OUR_PYTHON ? SIGKILL : SIGTERM);
    if (kind != OUR_PYTHON) connect_streams(s, kind);
    else {
        signal(SIGALRM, SIG_DFL);
        sigdelset(mask, SIGALRM);
        alarm(START_SECONDS);
    }
    sigprocmask(SIG_SETMASK, mask, NULL);
    if (getppid() == parent) become(command, environment);
    _exit(NO_COMPILER);
}

static bool has_ended(pid_t child, int options) {
    siginfo_t ended = {0};
    while (waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT | options) < 0)
        if (errno != EINTR) return !options || errno == ECHILD; /* refused: the streams tell */
    return ended.si_pid;
}

/* Reads what the child prints until nobody can print any more, or the child has ended and what it
 * has left behind, which may live on, is silent or goes on and on. */
static void drain(pid_t child, struct streams *s) {
    char bytes[CHUNK];
    const struct held *held[] = {&s->out, &s->err};
    struct pollfd from[] = {{s->out.pipe[0], POLLIN, 0}, {s->err.pipe[0], POLLIN, 0}};
    ssize_t rest = REST;
    while (rest > 0 && (from[0].fd >= 0 || from[1].fd >= 0)) {
        bool ended = has_ended(child, WNOHANG);
        int ready = poll(from, 2, ended ? 0 : LOOK_MS);
        if (ready == 0 && ended) return;
        for (int i = 0; i < 2 && ready > 0; i++) {
            if (!from[i].revents) continue;
            ssize_t n = read(from[i].fd, bytes, sizeof bytes);
            if (n == 0) from[i].fd = -1;
            if (n > 0 && write_all(held[i]->kept, bytes, n)) s->lost = true;
            if (n > 0 && ended) rest -= n;
        }
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

int shmb_child_run(char *const *command, char *const *environment, enum child_kind kind,
                   struct streams *s) {
    pid_t parent = getpid();
    sigset_t forwarded, old;
    struct sigaction handlers[FORWARDED_COUNT];
    int status = -1;
    sigemptyset(&forwarded);
    for (int i = 0; i < FORWARDED_COUNT; i++) sigaddset(&forwarded, FORWARDED[i]);
    sigprocmask(SIG_BLOCK, &forwarded, &old);
    pid_t child = fork();
    if (child == 0) start(command, environment, kind, s, parent, &old);
    int error = errno;
    compiler = child > 0 ? child : 0;
    forward_signals(handlers);
    sigprocmask(SIG_SETMASK, &old, NULL);
    for (int end = 1; kind == HELD_COMPILER && end >= 0; end--) {
        close(s->out.pipe[end]); /* or -1: neither is used again */
        close(s->err.pipe[end]);
        if (end && child > 0) drain(child, s);
    }
    if (child > 0) status = wait_for(child, &forwarded);
    /* A signal of the whole group comes twice, also from the parent that forwards it: the second
     * one must not end what is left to do. */
    for (int i = 0; i < FORWARDED_COUNT && !signalled; i++)
        sigaction(FORWARDED[i], &handlers[i], NULL);
    errno = error;
    return status;
}

int shmb_child_become(char *const *command) {
    become(command, environ);
    return NO_COMPILER;
}
