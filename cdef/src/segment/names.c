#include "segment/names.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHM "/dev/shm"
enum { DIRECTORY_BYTES = 256 }; /* leaves room for the names of files */

static bool is_name(const char *name) {
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");
    return n > 0 && n <= NAME_BYTES && !name[n] && name[0] != '.';
}

/* One that does not exist yet is for whoever opens files there to report. */
static shmb_status check_directory(const char *path, char *why) {
    struct stat st;
    if (*path != '/' || strpbrk(path, "?&") || strlen(path) > DIRECTORY_BYTES) {
        snprintf(why, NAME_ROOM,
                 "the directory \"%.120s\" of a bridge: expected an absolute path of at most %d "
                 "bytes, without '?' and '&'",
                 path, DIRECTORY_BYTES);
        return SHMB_INVALID;
    }
    if (stat(path, &st) != 0 || (st.st_uid == geteuid() && !(st.st_mode & 022))) return SHMB_OK;
    snprintf(why, NAME_ROOM,
             "%s belongs to user %u and has mode %o: expected a directory of user %u that nobody "
             "else can write to (mkdir -m 700), since others could put their files there",
             path, st.st_uid, st.st_mode & 07777, geteuid());
    return SHMB_PERMISSION;
}

shmb_status shmb_bridge_name(const char *text, const char *directory, char *out) {
    const char *name = *text == '/' ? strrchr(text, '/') + 1 : text;
    char path[DIRECTORY_BYTES + 2];
    if (!is_name(name)) {
        snprintf(out, NAME_ROOM,
                 "\"%.120s\" is not a bridge name: expected shm://NAME or NAME of 1 to %d letters, "
                 "digits, '_', '.' or '-', not beginning with '.'",
                 text, NAME_BYTES);
        return SHMB_INVALID;
    }
    if (name > text) snprintf(path, sizeof path, "%.*s", (int)(name - 1 - text), text);
    else if (directory || (directory = secure_getenv("SHMBRIDGE_DIR")))
        snprintf(path, sizeof path, "%s", directory);
    else *path = 0;
    for (size_t n = strlen(path); n && path[n - 1] == '/';) path[--n] = 0;
    bool elsewhere = *path && strcmp(path, SHM) != 0;
    shmb_status status = elsewhere ? check_directory(path, out) : SHMB_OK;
    if (!status)
        snprintf(out, NAME_ROOM, "%s%s%s", elsewhere ? path : "", elsewhere ? "/" : "", name);
    return status;
}

void shmb_segment_path(const char *name, const char *end, char *out) {
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
    snprintf(out, NAME_ROOM, "%.*s/shmb.%.*s%s%s",
             slash ? (int)(slash - name) : (int)sizeof SHM - 1, slash ? name : SHM, NAME_BYTES,
             base, end ? "~" : "", end ? end : "");
}
