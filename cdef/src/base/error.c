#undef _GNU_SOURCE /* glibc and musl agree on POSIX's strerror_r alone */
#define _POSIX_C_SOURCE 200809L
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

size_t shmb_text_fit(const char *text, size_t room) {
    size_t kept = room - strlen(TEXT_CUT);
    while (kept && (text[kept] & 0xc0) == 0x80) kept--;
    return kept;
}

void shmb_one_line(char *text) {
    for (unsigned char *at = (unsigned char *)text; *at; at++) {
        bool high = *at == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0; /* in UTF-8 */
        if (*at == '\n' || *at == '\r' || *at == '\t') *at = ' ';
        else if (*at < ' ' || *at == 0x7f || high) *at = '?';
        if (high) at[1] = '?';
    }
}

shmb_status shmb_fail(struct error *e, shmb_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int bytes = vsnprintf(e->message, sizeof e->message, format, args);
    va_end(args);
    if (!bytes) strcpy(e->message, shmb_strerror(status));
    if (bytes >= (int)sizeof e->message)
        strcpy(e->message + shmb_text_fit(e->message, sizeof e->message - 1), TEXT_CUT);
    shmb_one_line(e->message);
    return e->status = status;
}

shmb_status shmb_fail_errno(struct error *e, const char *what) {
    int number = errno;
    char text[128] = "";
    strerror_r(number, text, sizeof text);
    bool refused = number == EPERM || number == ENOSYS;
    return shmb_fail(e, number == ENOMEM ? SHMB_NO_MEMORY : SHMB_SYSTEM, "%.300s: %s%s", what, text,
                     refused ? ": let this process's sandbox (seccomp) allow that call" : "");
}

void shmb_list_name(char *list, size_t room, const char *name) {
    size_t used = strlen(list), cut = strlen(TEXT_CUT);
    if (used >= cut && strcmp(list + used - cut, TEXT_CUT) == 0) return;
    if (used + strlen(name) + cut + 5 > room) name = TEXT_CUT;
    snprintf(list + used, room - used, "%s%s", used ? ", " : "", name);
}

bool shmb_status_lasts(shmb_status status) {
    return status == SHMB_HOST_GONE || status == SHMB_CLOSED || status == SHMB_CORRUPT ||
           status == SHMB_FORKED;
}

const char *shmb_strerror(shmb_status status) {
    switch (status) {
    case SHMB_OK: return "ok";
    case SHMB_INVALID: return "invalid argument";
    case SHMB_UNSUPPORTED: return "this library has no runner for that scheme";
    case SHMB_NO_HOST: return "no live host of that name";
    case SHMB_BUSY: return "every channel of the host is taken";
    case SHMB_IN_USE: return "a live host already has that name";
    case SHMB_INCOMPATIBLE: return "the other side uses another protocol version";
    case SHMB_PERMISSION:
        return "the segment belongs to another user, or other users can access it";
    case SHMB_CORRUPT: return "the received bytes violate the protocol";
    case SHMB_HOST_GONE: return "the host died";
    case SHMB_RUNNER_GONE: return "the runner died or disconnected before the reply";
    case SHMB_CLOSED: return "closed";
    case SHMB_TIMEOUT: return "the deadline passed";
    case SHMB_INTERRUPTED: return "interrupted";
    case SHMB_TOO_LARGE: return "the message does not fit its slot";
    case SHMB_MISMATCH: return "names, dtypes or shapes differ from the expected ones";
    case SHMB_INEXACT: return "a value is not exactly representable in the wanted dtype";
    case SHMB_MODEL: return "the model failed";
    case SHMB_DROPPED: return "the host discarded the request without a reply";
    case SHMB_FORKED: return "the runner was inherited through fork: open another in the child";
    case SHMB_SYSTEM: return "a system call failed";
    case SHMB_NO_MEMORY: return "out of memory";
    }
    return "unknown status";
}
