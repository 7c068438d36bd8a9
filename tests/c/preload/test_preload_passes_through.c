/* What is no channel is untouched: files, pipes, stdio, and what once was a channel's, however it
 * came free. */
#include <errno.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "llvm_channel.h"

static int pipe_in, pipe_out;

static void expect_plain(int in, int out) {
    char text[8] = "";
    CHECK(write(out, "plain", 6) == 6 && read(in, text, sizeof text) == 6 &&
          strcmp(text, "plain") == 0);
}

/* Both descriptors become a pipe's, and none of the channel's state shows. */
static void by_dup2(void) {
    struct llvm_channel c;
    llvm_open(&c);
    CHECK(dup2(pipe_in, c.in) == c.in && dup2(pipe_out, c.out) == c.out);
    expect_plain(c.in, c.out);
    llvm_close(&c);
}

static void by_ranges(void) {
#ifdef __GLIBC__ /* musl has no functions of that kind */
    struct llvm_channel c, d;
    llvm_open(&c);
    llvm_open(&d);
    int low = c.in < c.out ? c.in : c.out;
    CHECK(close_range((unsigned)low, (unsigned)low + 1000, 0) == 0);
    CHECK(fcntl(c.in, F_GETFD) < 0 && write(c.out, "x", 1) < 0 && errno == EBADF);
    CHECK(dup2(pipe_in, c.in) == c.in && dup2(pipe_out, c.out) == c.out);
    expect_plain(c.in, c.out);
    closefrom(low);
    llvm_open(&c);
    closefrom(low);
    CHECK(write(c.out, "x", 1) < 0 && errno == EBADF);
#endif
}

/* More than the host has channels: they get the default advice. */
static void many(void) {
    struct llvm_channel all[64];
    for (int i = 0; i < 64; i++) llvm_open(&all[i]);
    for (int i = 0; i < 64; i++) CHECK(llvm_ask(&all[i], 0, i) == i);
    for (int i = 0; i < 64; i++) llvm_close(&all[i]);
}

static void files_and_stdio(void) {
    char path[] = "/tmp/shmbridge-plain-XXXXXX", text[16] = "";
    int fd = mkstemp(path);
    FILE *file = fdopen(dup(fd), "w");
    CHECK(file && fputs("by stdio", file) >= 0 && fclose(file) == 0 && close(fd) == 0);
    fd = openat(AT_FDCWD, path, O_RDWR);
    CHECK(read(fd, text, sizeof text) == 8 && strcmp(text, "by stdio") == 0 && close(fd) == 0);
    unlink(path);
    fd = open64(path, O_RDWR | O_CREAT | O_EXCL, 0640);
    struct stat st;
    CHECK(fstat(fd, &st) == 0 && (st.st_mode & 07777) == (0640 & ~umask(022)) && close(fd) == 0);
    unlink(path);
    fd = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    CHECK((fd >= 0 && fstat(fd, &st) == 0 && (st.st_mode & 07777) == 0600 && close(fd) == 0) ||
          errno == EOPNOTSUPP);
}

static void errors_are_the_systems(void) {
    errno = 0;
    CHECK(close(-1) < 0 && errno == EBADF && dup(-1) < 0 && dup2(-1, 3) < 0 &&
          read(99999999, &errno, 1) < 0);
    CHECK(open("/no such place/else", O_RDONLY) < 0 && errno == ENOENT);
    CHECK(open(PREFIX ".x", O_RDONLY) < 0 && errno == ENOENT);     /* neither end */
    CHECK(open(PREFIX ".x.out", O_WRONLY) < 0 && errno == ENOENT); /* no .in came before */
    int alone = open(PREFIX ".x.in", O_RDONLY);
    CHECK(alone >= 0 && close(alone) == 0); /* and none of it is left */
    CHECK(open(PREFIX ".x.out", O_WRONLY) < 0 && errno == ENOENT);
    struct rlimit limit, none;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    none = (struct rlimit){.rlim_max = limit.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    CHECK(open(PREFIX ".x.in", O_RDONLY) == -1 && errno == EMFILE);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    errno = 77;
    struct llvm_channel c;
    llvm_open(&c);
    CHECK(llvm_ask(&c, 0, 3) == 3);
    llvm_close(&c);
    CHECK(errno == 77);
}

int main(int argc, char **argv) {
    llvm_environment(argv); /* no host: the default advice */
    int fds[2];
    CHECK(pipe(fds) == 0);
    pipe_in = fds[0], pipe_out = fds[1];
    errors_are_the_systems();
    files_and_stdio();
    by_dup2();
    many();
    by_ranges();
}
