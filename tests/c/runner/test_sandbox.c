/* A sandbox that forbids fcntl's locks is told as what it is: neither a dead host nor a dead
 * runner.
 * One that forbids to sleep by futex makes waits nap. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/syscall.h>

#include "bridge.h"

/* From here on a system call refuses one command in this process, as a seccomp profile may. */
static void forbid_call(unsigned call, unsigned command) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, command, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
          prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void forbid(unsigned command) { forbid_call(__NR_fcntl, command); }

static void expect_system(shmb_runner *r, shmb_status status) {
    CHECK_STATUS(r, status, SHMB_SYSTEM);
    CHECK(strstr(shmb_error_message(r), "fcntl") && strstr(shmb_error_message(r), strerror(EPERM)));
    shmb_close(r);
}

static void connecting(const char *name, unsigned command) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        shmb_runner *r;
        forbid(command);
        shmb_status status = shmb_open(name, NULL, &r);
        expect_system(r, status);
        _exit(0);
    }
    CHECK(process_wait(pid) == 0);
}

/* Also where the sandbox closes after the runner is in. */
static void both_sides_in_mid_talk(struct bridge *b) {
    shmb_runner *r = bridge_connect(b, "");
    forbid(F_OFD_GETLK);
    for (int i = 0; i < 4; i++) CHECK(shmb_host_receive(b->host, SLICE_NS) == -SHMB_TIMEOUT);
    CHECK(shmb_host_attached(b->host) == 1);
    expect_system(r, evaluate_x(r, 1));
}

static bool never(void *context) { return (void)context, false; }

static void sleeping(void) {
    struct semaphore bell = {0};
    _Atomic uint32_t asleep = 0;
    struct waiter w;
    shmb_waiter_init(&w, SHMB_WAIT_BLOCK);
    forbid_call(__NR_futex, FUTEX_WAIT);
    int64_t until = shmb_clock_ns() + SLICE_NS, waits = 0;
    for (; shmb_clock_ns() < until; waits++)
        shmb_waiter_wait(&w, never, NULL, &asleep, &bell, until);
    _exit(waits > SLICE_NS / (1000 * 1000));
}

int main(void) {
    struct server s;
    server_start(&s, "sandbox", SHMB_WAIT_DEFAULT);
    connecting(s.bridge.name, F_OFD_GETLK);
    connecting(s.bridge.name, F_OFD_SETLK);
    pid_t pid = fork();
    if (pid == 0) sleeping();
    CHECK(process_wait(pid) == 0);
    server_halt(&s);
    both_sides_in_mid_talk(&s.bridge);
    bridge_close(&s.bridge);
}
