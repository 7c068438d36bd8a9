#include "pipe/compilers.h"

#include <stdio.h>
#include <string.h>

const shmb_llvm_decision shmb_llvm_decisions[] = {
    {"inline", "-enable-ml-inliner=release", "-inliner-interactive-channel-base="},
    {"evict", "-regalloc-enable-advisor=release", "-regalloc-evict-interactive-channel-base="},
    {"priority", "-regalloc-enable-priority-advisor=release",
     "-regalloc-priority-interactive-channel-base="},
    {NULL, NULL, NULL},
};

const char shmb_compiler_name[] =
    "(.+-)?(clang|opt|llc|rustc|ld[.]lld)([+][+])?(-([0-9]+)([.][0-9]+)*)?";

const char shmb_clang_unwarned[] = "--start-no-unused-arguments";
const char shmb_clang_warned[] = "--end-no-unused-arguments";

const char *const shmb_caches[] = {"buildcache", "ccache", "sccache", NULL};

/* For sccache there is none. */
const char *const shmb_cache_bypass[] = {"CCACHE_DISABLE=1", "BUILDCACHE_DISABLE=true",
                                         "DISTCC_HOSTS=localhost", "ICECC=disable", NULL};

const double shmb_llvm_deadline = 10;

/* ---- What was asked ---- */

struct sum {
    unsigned long long asked, defaulted;
    const char *why; /* the first */
    int why_bytes;
};

static struct sum sum_of(const char *report, const char *decision) {
    struct sum s = {.why = ""};
    for (const char *line = report, *end; *line; line = end + (*end == '\n')) {
        unsigned long long asked, defaulted;
        char name[16];
        int at = 0;
        end = line + strcspn(line, "\n");
        if (sscanf(line, "%15s %llu %llu %*d %n", name, &asked, &defaulted, &at) < 3 ||
            strcmp(name, decision) != 0)
            continue;
        s.asked += asked;
        s.defaulted += defaulted;
        if (s.why_bytes || line + at >= end) continue;
        s.why = line + at;
        s.why_bytes = (int)(end - s.why);
    }
    return s;
}

uint64_t shmb_llvm_summary(const char *report, const char *always, char text[SHMB_SUMMARY_BYTES]) {
    struct sum all = {0};
    char each[SHMB_SUMMARY_BYTES - 128] = "";
    size_t used = 0;
    for (const shmb_llvm_decision *d = shmb_llvm_decisions; d->name; d++) {
        struct sum s = sum_of(report, d->name);
        all.asked += s.asked;
        all.defaulted += s.defaulted;
        if ((s.defaulted || strstr(always, d->name)) && used < sizeof each)
            used += (size_t)snprintf(each + used, sizeof each - used, "%s%llu of %llu %s%s%.*s",
                                     used ? "; " : "", s.defaulted, s.asked, d->name,
                                     s.why_bytes ? ": " : "", s.why_bytes, s.why);
    }
    snprintf(text, SHMB_SUMMARY_BYTES,
             "shmbridge: %llu of %llu decisions took the default advice (%s)", all.defaulted,
             all.asked, each);
    char *to = text;
    for (const char *at = text; *at; at++)
        if (at[0] != ' ' || at[1] != ' ') *to++ = *at;
    *to = 0;
    return all.defaulted;
}
