/* What a program that has the library starts. It and its variables are for compilers whose command
 * line names the channel; an assembler of 32 bits or of another C library must not even see them.
 * No compiler calls execl or fexecve. May be called between vfork and exec: all is on the stack. */
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

static const char PRELOAD[] = "LD_PRELOAD=", LIBRARY[] = "libshmbridge-preload.so";

/* A response file may name the channel, too. */
static bool names_channel(char *const *words) {
    for (; words && *words; words++)
        if (**words == '@' || strstr(*words, preload_prefix())) return true;
    return false;
}

/* How many entries there are, with the NULL; *preload: $LD_PRELOAD's, if it has this library. */
static size_t entries(char *const *all, const char **preload) {
    size_t n = 1;
    for (; all && *all; all++, n++)
        if (!strncmp(*all, PRELOAD, strlen(PRELOAD)) && strstr(*all, LIBRARY)) *preload = *all;
    return n;
}

/* Takes this library out of that entry. */
static char *others(char *entry) {
    char *names = entry + sizeof PRELOAD - 1, *at;
    while ((at = strstr(names, LIBRARY))) {
        const char *end = at + strcspn(at, " :");
        end += strspn(end, " :");
        while (at > names && !strchr(" :", at[-1])) at--;
        memmove(at, end, strlen(end) + 1);
    }
    return *names ? entry : NULL;
}

static char *const *for_child(const char *program, char *const *words, char *const *all,
                              char **kept, const char *preload, char *copy) {
    char path[SHMB_PROGRAM_BYTES];
    size_t n = 0;
    if (!*preload_prefix() || !all) return all;
    if (names_channel(words) && !(shmb_program_find(program, path) && shmb_program_refuses(path)))
        return all;
    for (; *all; all++)
        if (*all == preload) n += (kept[n] = others(strcpy(copy, preload))) != NULL;
        else if (strncmp(*all, "SHMBRIDGE_LLVM_", 15) != 0) kept[n++] = *all;
    kept[n] = NULL;
    return kept;
}

#define FOR_CHILD(program, words, all)                                                             \
    const char *preload = "";                                                                      \
    char *kept[entries(all, &preload)], copy[strlen(preload) + 1];                                 \
    char *const *child = for_child(program, words, all, kept, preload, copy)

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
