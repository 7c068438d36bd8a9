/* exec closes the segment: what a runner or host executes holds no lock and no descriptor of it. */
#include <dirent.h>

#include "bridge.h"

static int open_segments(void) {
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    for (struct dirent *e; (e = readdir(d));) {
        char path[300], target[200];
        snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
        ssize_t bytes = readlink(path, target, sizeof target - 1);
        if (bytes > 0) target[bytes] = 0, n += strncmp(target, "/dev/shm/", 9) == 0;
    }
    closedir(d);
    return n;
}

int main(int argc, char **argv) {
    if (argc > 1) return open_segments();
    char name[64];
    pid_t host = host_process("exec", name, NULL);
    shmb_runner *r = runner_open(name);
    CHECK(open_segments() == 1);
    pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", argv[0], "count", (char *)NULL);
        _exit(99);
    }
    CHECK(process_wait(pid) == 0);
    CHECK(asked(r, 1) == 2);
    pid = fork(); /* a runner that executes something else has left: its channel is free */
    if (pid == 0) {
        for (int i = 0; i < 3; i++) runner_open(name);
        execl("/bin/sleep", "sleep", "20", (char *)NULL);
        _exit(99);
    }
    usleep(300000);
    shmb_runner *more[3];
    for (int i = 0; i < 3; i++) more[i] = runner_open(name);
    for (int i = 0; i < 3; i++) shmb_close(more[i]);
    process_kill(pid);
    shmb_close(r);
    process_kill(host);
    CHECK(bridge_clean(name));
}
