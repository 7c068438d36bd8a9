/* A compiler's plain calls on a channel's paths become questions to a host; what it sees of the
 * descriptors is a FIFO's. */
#include "llvm_channel.h"

static void looks_like_a_fifo(const struct llvm_channel *c) {
    struct stat st;
    CHECK(fstat(c->in, &st) == 0 && S_ISFIFO(st.st_mode) && fstat(c->out, &st) == 0 &&
          S_ISFIFO(st.st_mode));
    CHECK(lseek(c->out, 0, SEEK_CUR) < 0 && !isatty(c->out));
    CHECK((fcntl(c->in, F_GETFL) & O_ACCMODE) == O_RDONLY &&
          (fcntl(c->out, F_GETFL) & O_ACCMODE) == O_WRONLY);
    CHECK(fcntl(c->in, F_GETFD) == FD_CLOEXEC);
    CHECK(read(c->out, &st, 1) < 0 && write(c->in, &st, 1) < 0);
}

static void byte_by_byte(const struct llvm_channel *c) {
    char text[64];
    float advice;
    size_t n = llvm_observation(text, 7, 10); /* its tensors hold a newline's byte */
    for (size_t i = 0; i < n; i++) llvm_write(c->out, text + i, 1);
    for (size_t i = 0; i < sizeof advice; i++) CHECK(read(c->in, (char *)&advice + i, 1) == 1);
    CHECK(advice == 11);
}

static void expect_report(const char *path, const char *expected) {
    char text[1024] = "";
    int fd = open(path, O_RDONLY);
    CHECK(read(fd, text, sizeof text - 1) > 0);
    close(fd);
    for (char *line; (line = strstr(text, "asking "));) /* as many as there are channels */
        memmove(line, strchr(line, '\n') + 1, strlen(strchr(line, '\n')));
    if (strcmp(text, expected) != 0) fprintf(stderr, "found %s", text);
    CHECK(strcmp(text, expected) == 0);
}

static void exit_with_two_open(void) {
    struct llvm_channel first, closed, last;
    llvm_open(&first);
    llvm_open(&closed);
    llvm_open(&last);
    CHECK(llvm_ask(&first, 0, 5) == 6 && llvm_ask(&first, 1, 6) == 7);
    CHECK(llvm_ask(&closed, 0, 5) == 6);
    llvm_close(&closed);
    exit(0);
}

/* A compiler that may ask twice: the other decisions are its own. */
static void start_limited(void) {
    char path[64];
    int fd = memfd_create("limit", 0);
    CHECK(write(fd, &(int64_t){2}, sizeof(int64_t)) == sizeof(int64_t));
    sprintf(path, "/proc/self/fd/%d", fd);
    setenv("SHMBRIDGE_LLVM_LIMIT", path, 1);
    execl("/proc/self/exe", "compiler", "limited", PREFIX, NULL);
    exit(2);
}

static int limited(void) {
    struct llvm_channel c;
    char text[64];
    llvm_open(&c);
    CHECK(llvm_ask(&c, 0, 5) == 6);
    llvm_write(c.out, text, llvm_observation(text, 1, 5)); /* its answer is not read */
    CHECK(llvm_ask(&c, 2, 5) == 5 && llvm_ask(&c, 3, 5) == 5);
    llvm_close(&c);
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1) return limited();
    llvm_environment(argv);
    char name[64], report[] = "/tmp/shmbridge-report-XXXXXX";
    struct llvm_channel c, other;
    for (int i = 0; i < 2000; i++) { /* one that is closed makes room for another */
        llvm_open_ends(&c);
        llvm_close(&c);
    }
    close(mkstemp(report));
    setenv("SHMBRIDGE_LLVM_REPORT", report, 1);
    pid_t host = llvm_host(name, NULL, "");
    llvm_open(&c);
    looks_like_a_fifo(&c);
    for (int i = 0; i < 1000; i++) CHECK(llvm_ask(&c, i, i) == i + 1);
    byte_by_byte(&c);
    llvm_open(&other); /* of the same name, with a runner of its own */
    CHECK(other.in != c.in && llvm_ask(&other, 0, 5) == 6 && llvm_ask(&c, 10, 6) == 7);
    llvm_close(&c);
    expect_report(report, "priority 1002 0 0 \n");
    CHECK(close(other.out) == 0 && close(other.in) == 0);
    expect_report(report, "priority 1002 0 0 \npriority 1 0 0 \n");
    CHECK(close(open(PREFIX ".priority.in", O_RDONLY)) == 0); /* no channel without .out */
    expect_report(report, "priority 1002 0 0 \npriority 1 0 0 \n");
    pid_t compiler = fork();
    if (compiler == 0) exit_with_two_open();
    CHECK(compiler > 0 && process_wait(compiler) == 0); /* it reports each channel once */
    compiler = fork();
    if (compiler == 0) start_limited();
    CHECK(compiler > 0 && process_wait(compiler) == 0);
    expect_report(report, "priority 1002 0 0 \npriority 1 0 0 \npriority 1 0 0 \npriority 2 0 0 \n"
                          "priority 0 0 0 \nloaded 0 0 0 test_preload_asks\npriority 2 0 0 \n");
    llvm_host_end(host, name);
    unlink(report);
}
