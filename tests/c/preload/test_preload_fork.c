/* A forked child's copies of channels give the default; what it closes stays open in the parent,
 * also before exec. */
#include <spawn.h>

#include "llvm_channel.h"

enum { COPY = 40 }; /* a descriptor that only the child has */

static void child(struct llvm_channel *c) {
    CHECK(llvm_ask(c, 1, 10) == 10); /* the parent's runner is not the child's */
    llvm_close(c);
    int fds[2];
    CHECK(pipe(fds) == 0 && dup2(fds[0], c->in) == c->in && dup2(fds[1], c->out) == c->out);
    llvm_write(c->out, "plain", 5);
    char text[5];
    CHECK(read(c->in, text, 5) == 5 && memcmp(text, "plain", 5) == 0);
    llvm_open(c);
    CHECK(llvm_ask(c, 0, 10) == 11); /* its own is */
    llvm_close(c);
    _exit(0);
}

/* As make and others do: vfork's child shares the parent's memory until exec. */
static __attribute__((noinline)) pid_t start_by_vfork(const struct llvm_channel *c) {
    pid_t pid = vfork();
    if (pid == 0) {
        dup2(c->in, COPY);
        close(c->in);
        dup2(2, c->out);
        execl("/bin/sh", "sh", "-c", "exit 7", (char *)NULL);
        _exit(127);
    }
    return pid;
}

static pid_t start_by_spawn(const struct llvm_channel *c) {
    extern char **environ;
    pid_t pid;
    posix_spawn_file_actions_t actions;
    CHECK(posix_spawn_file_actions_init(&actions) == 0 &&
          posix_spawn_file_actions_addclose(&actions, c->in) == 0 &&
          posix_spawn_file_actions_adddup2(&actions, 2, c->out) == 0);
    char *argv[] = {"sh", "-c", "exit 8", NULL};
    CHECK(posix_spawn(&pid, "/bin/sh", &actions, NULL, argv, environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
}

int main(int argc, char **argv) {
    llvm_environment(argv);
    char name[64];
    pid_t host = llvm_host(name, NULL, ""), pid;
    struct llvm_channel c;
    llvm_open(&c);
    CHECK(llvm_ask(&c, 0, 1) == 2);
    CHECK((pid = fork()) >= 0);
    if (pid == 0) child(&c);
    CHECK(process_wait(pid) == 0);
    CHECK(llvm_ask(&c, 1, 2) == 3);
    char text[64];
    float advice;
    llvm_write(c.out, text, llvm_observation(text, 5, 6));
    CHECK(process_wait(start_by_vfork(&c)) == 7 && read(COPY, text, 1) == -1);
    CHECK(read(c.in, &advice, sizeof advice) == sizeof advice && advice == 7);
    CHECK(process_wait(start_by_spawn(&c)) == 8);
    CHECK(llvm_ask(&c, 2, 3) == 4);
    llvm_close(&c);
    llvm_host_end(host, name);
}
