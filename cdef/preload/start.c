/* What a program that has the library starts. The library and its variables are for compilers whose
 * command line names the channel. Others, such as an assembler or a linker of 32 bits or of another
 * C library, must not even see them. No compiler calls execl or fexecve, which pass by. May be
 * called between vfork and exec: all is on the stack. */
#include <spawn.h>
#include <stdbool.h>
#include <string.h>

#include "command/compilers.h"
#include "preload.h"

extern char **environ;

NEXT(execve)
NEXT(execvpe)
NEXT(posix_spawn)
NEXT(posix_spawnp)

static const char OURS[] = "SHMBRIDGE_LLVM_",
                  PRELOAD[] = "LD_PRELOAD=", LIBRARY[] = "libshmbridge-preload.so";

/* A response file may name the channel, too. */
static bool names_channel(char *const *words) {
    for (; words && *words; words++)
        if (**words == '@' || strstr(*words, preload_prefix())) return true;
    return false;
}

static bool is_asked(const char *program, char *const *words) {
    char path[SHMB_PROGRAM_BYTES];
    return names_channel(words) &&
           !(shmb_program_find(program, path) && shmb_program_refuses(path));
}

/* How many entries there are, with the NULL. */
static size_t entries(char *const *all) {
    size_t n = 1;
    while (all && *all++) n++;
    return n;
}

/* Without ours, and with $LD_PRELOAD as it was before the run, if it was. */
static char *const *for_child(const char *program, char *const *words, char *const *all,
                              char **kept) {
    if (!*preload_prefix() || !all || is_asked(program, words)) return all;
    size_t n = 0;
    for (; *all; all++) {
        bool ours = strncmp(*all, OURS, sizeof OURS - 1) == 0;
        char *entry = *all + (ours ? sizeof OURS - 1 : 0);
        bool preload = strncmp(entry, PRELOAD, sizeof PRELOAD - 1) == 0;
        if (ours ? preload : !preload || !strstr(entry, LIBRARY)) kept[n++] = entry;
    }
    kept[n] = NULL;
    return kept;
}

#define FOR_CHILD(program, words, all)                                                             \
    char *kept[entries(all)];                                                                      \
    char *const *child = for_child(program, words, all, kept)

int execve(const char *path, char *const words[], char *const all[]) {
    FOR_CHILD(path, words, all);
    return next_execve()(path, words, child);
}

int execvpe(const char *file, char *const words[], char *const all[]) {
    FOR_CHILD(file, words, all);
    return next_execvpe()(file, words, child);
}

int execv(const char *path, char *const words[]) { return execve(path, words, environ); }
int execvp(const char *file, char *const words[]) { return execvpe(file, words, environ); }

#define SPAWN(name)                                                                                \
    int name(pid_t *pid, const char *program, const posix_spawn_file_actions_t *actions,           \
             const posix_spawnattr_t *attributes, char *const words[], char *const all[]) {        \
        FOR_CHILD(program, words, all);                                                            \
        return next_##name()(pid, program, actions, attributes, words, child);                     \
    }
SPAWN(posix_spawn)
SPAWN(posix_spawnp)
