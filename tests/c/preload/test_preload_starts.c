/* What a compiler starts has the library and its variables if its words name the channel, or a
 * response file; all else starts as if there were none, however it is started. */
#include <limits.h>
#include <spawn.h>
#include <sys/wait.h>

#include "llvm_channel.h"

extern char **environ;

#define ASKED "A=" PREFIX ".inline.in"
#define OTHER "LD_PRELOAD=other.so"

static char self[PATH_MAX], *name; /* of this program, which prints its environment */
static char *words[] = {self, NULL, NULL};

static void by_execve(void) { execve(self, words, environ); }
static void by_execv(void) { execv(self, words); }
static void by_execvp(void) { execvp(name, words); }
static void by_execvpe(void) { execvpe(name, words, environ); }

static void end_as(pid_t pid) {
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    _exit(WEXITSTATUS(status));
}

static void by_posix_spawn(void) {
    pid_t pid;
    CHECK(posix_spawn(&pid, self, NULL, NULL, words, environ) == 0);
    end_as(pid);
}

static void by_posix_spawnp(void) {
    pid_t pid;
    CHECK(posix_spawnp(&pid, name, NULL, NULL, words, environ) == 0);
    end_as(pid);
}

static void (*const ways[])(void) = {by_execve,  by_execv,       by_execvp,
                                     by_execvpe, by_posix_spawn, by_posix_spawnp};

/* The environment of what was started so, with that word. */
static const char *started(void (*way)(void), char *word) {
    static char text[1 << 16];
    int ends[2];
    ssize_t n, size = 0;
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1);
        close(2); /* where the linker complains of what it cannot preload */
        words[1] = word;
        way();
        _exit(1);
    }
    close(ends[1]);
    while ((n = read(ends[0], text + size, sizeof text - 1 - (size_t)size)) > 0) size += n;
    text[size] = 0;
    close(ends[0]);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return text;
}

int main(int argc, char **argv) {
    for (char **one = environ; argc > 1 && *one; one++) printf("\n%s\n", *one);
    if (argc > 1) return 0;
    llvm_environment(argv);
    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    *(name = strrchr(self, '/')) = 0;
    setenv("PATH", self, 1);
    *name++ = '/';
    setenv("LD_PRELOAD", "/a/libshmbridge-preload.so /b/libshmbridge-preload.so:other.so", 1);
    setenv("SHMBRIDGE_URL", "mine", 1);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const char *plain = started(ways[i], "A=1");
        CHECK(strstr(plain, "\nSHMBRIDGE_URL=mine\n") && !strstr(plain, "SHMBRIDGE_LLVM_"));
        CHECK(strstr(plain, "\n" OTHER "\n") && strstr(plain, "PATH="));
        const char *asked = started(ways[i], ASKED);
        CHECK(strstr(asked, "SHMBRIDGE_LLVM_BASE=" PREFIX) &&
              strstr(asked, "LD_PRELOAD=/a/libshm"));
    }
    setenv("LD_PRELOAD", "other.so /a/libshmbridge-preload.so", 1);
    CHECK(strstr(started(by_execve, "A=1"), "\n" OTHER " \n"));
    setenv("LD_PRELOAD", "/a/libshmbridge-preload.so", 1);
    CHECK(!strstr(started(by_execve, "A=1"), "LD_PRELOAD"));
}
