/* What a program that has the library starts. The library and its variables are for compilers whose
 * command line names the channel. Others, such as an assembler or a linker of 32 bits or of another
 * C library, must not even see them. No compiler calls execl or fexecve, which pass by. May be
 * called between vfork and exec: all is on the stack. */
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
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

static bool is_asked(const char *program, char *const *words) {
    char path[SHMB_PROGRAM_BYTES];
    return names_channel(words) &&
           !(shmb_program_find(program, path) && shmb_program_refuses(path));
}

static bool is_preload(const char *entry) {
    return strncmp(entry, PRELOAD, sizeof PRELOAD - 1) == 0 && strstr(entry, LIBRARY);
}

/* How many entries there are, with the NULL; how many bytes a copy of $LD_PRELOAD has. */
static size_t entries(char *const *all) {
    size_t n = 1;
    while (all && *all++) n++;
    return n;
}

static size_t preload_bytes(char *const *all) {
    size_t most = 1;
    for (; all && *all; all++)
        if (is_preload(*all) && strlen(*all) >= most) most = strlen(*all) + 1;
    return most;
}

/* Copies $LD_PRELOAD without this library; false: nothing is left of it. */
static bool others(const char *entry, char *to) {
    char *end = to + sprintf(to, "%s", PRELOAD), *start = end;
    for (const char *name = entry + sizeof PRELOAD - 1; *name;) {
        size_t n = strcspn(name, " :");
        const char *file = memrchr(name, '/', n);
        file = file ? file + 1 : name;
        bool ours = (size_t)(name + n - file) == sizeof LIBRARY - 1 &&
                    strncmp(file, LIBRARY, sizeof LIBRARY - 1) == 0;
        if (n && !ours) end += sprintf(end, "%s%.*s", end > start ? ":" : "", (int)n, name);
        name += n + (name[n] != 0);
    }
    return end > start;
}

static char *const *for_child(const char *program, char *const *words, char *const *all,
                              char **kept, char *preload) {
    if (!*preload_prefix() || !all || is_asked(program, words)) return all;
    size_t n = 0;
    for (; *all; all++) {
        if (strncmp(*all, "SHMBRIDGE_LLVM_", 15) == 0) continue;
        if (!is_preload(*all)) kept[n++] = *all;
        else if (others(*all, preload)) kept[n++] = preload;
    }
    kept[n] = NULL;
    return kept;
}

#define FOR_CHILD(program, words, all)                                                             \
    char *kept[entries(all)], preload[preload_bytes(all)];                                         \
    char *const *child = for_child(program, words, all, kept, preload)

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
