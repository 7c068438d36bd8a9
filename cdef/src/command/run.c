#include "command/run.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "command/build.h"
#include "command/child.h"
#include "command/compilers.h"

extern char **environ;
static struct streams streams = {.out = {{-1, -1}, -1}, .err = {{-1, -1}, -1}};
static struct error why; /* of the only run of this process */

/* ---- The compilation that asks ---- */

static size_t count(char *const *list) {
    size_t n = 0;
    while (list[n]) n++;
    return n;
}

static bool names(char *const *variables, const char *entry) {
    size_t n = strcspn(entry, "=") + 1;
    for (; *variables; variables++)
        if (strncmp(*variables, entry, n) == 0) return true;
    return false;
}

int shmb_run_ask(shmb_run *r) {
    struct timespec now;
    size_t n = 0, more = count(r->variables);
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    r->began = now.tv_sec * (long long)SECOND_NS + now.tv_nsec;
    char **all = calloc(count(environ) + more + 1, sizeof *all);
    const char *word;
    if (!all || !shmb_streams_hold(&streams)) {
        shmb_fail_errno(&why, "the compiler's streams cannot be held back");
        return -1;
    }
    if (!shmb_streams_keep(&streams, r->plain, r->reads_stdin, &word)) {
        shmb_fail(&why, SHMB_UNSUPPORTED,
                  "%s can be read or written only once, and perhaps it must be compiled twice",
                  word);
        return -1;
    }
    for (char **entry = environ; *entry; entry++)
        if (!names(r->variables, *entry)) all[n++] = *entry;
    memcpy(all + n, r->variables, more * sizeof *all);
    int status = shmb_child_run(r->asking, all, &streams, true);
    if (status < 0) shmb_fail_errno(&why, "the compiler cannot be started");
    free(all);
    return status;
}

/* ---- What came of it ---- */

static int held_errors(void) { return streams.merged ? streams.out.kept : streams.err.kept; }

static char *text_of(int file) {
    off_t size = file < 0 ? 0 : lseek(file, 0, SEEK_END);
    char *text = calloc((size_t)(size < 0 ? 0 : size) + 1, 1);
    if (text && size > 0 && pread(file, text, (size_t)size, 0) < 0) *text = 0;
    return text;
}

struct tally {
    unsigned long long asked, defaulted;
    bool late;
    char why[512]; /* the first default's */
};

/* What a report says of a decision. */
static void tally(const char *report, const char *decision, size_t size, struct tally *t) {
    unsigned long long asked, defaulted;
    int status, at;
    memset(t, 0, sizeof *t);
    for (const char *line = report; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        at = 0;
        if (strncmp(line, decision, size) != 0 || line[size] != ' ' ||
            sscanf(line + size, " %llu %llu %d%n", &asked, &defaulted, &status, &at) != 3 || !at)
            continue;
        const char *reason = line + size + at + (line[size + at] == ' ');
        if (!*t->why) snprintf(t->why, sizeof t->why, "%.*s", (int)strcspn(reason, "\n"), reason);
        t->asked += asked;
        t->defaulted += defaulted;
        t->late |= status == SHMB_TIMEOUT;
    }
}

/* One line, in which no byte moves a cursor. */
static void tidy(char *text) {
    char *to = text;
    for (const unsigned char *from = (unsigned char *)text; *from; from++) {
        char c = *from < ' ' || *from == 127 ? ' ' : (char)*from;
        if (c != ' ' || (to > text && to[-1] != ' ')) *to++ = c;
    }
    *to = 0;
}

static bool has_default(const struct shmb_run *r, const char *decision, size_t size) {
    if (r->strict) return false;
    for (const char *entry = r->defaults; *entry; entry += strcspn(entry, ","), entry += !!*entry)
        if (strncmp(entry, decision, size) == 0 && entry[size] == '=') return true;
    return false;
}

struct outcome {
    unsigned long long asked, advised;
    bool late, lacks; /* some decision had neither advice nor a default of the user's */
    char *text;
};

/* The decisions that got advice, of all kinds or of those that lack it, and why the others did
 * not. */
static void look(const struct shmb_run *r, const char *report, bool lacking, struct outcome *o) {
    size_t size, room;
    char *each;
    FILE *list = open_memstream(&each, &room);
    memset(o, 0, sizeof *o);
    for (const char *d = r->decisions; list && *d; d += size, d += *d == ',') {
        struct tally t;
        size = strcspn(d, ",");
        tally(report, d, size, &t);
        bool lacks = t.defaulted && (!has_default(r, d, size) || !lacking);
        o->late |= t.late;
        o->lacks |= lacks;
        if (lacking && !lacks) continue;
        tidy(t.why);
        fprintf(list, "%s%.*s %llu of %llu%s%s", o->asked || ftell(list) ? "; " : "", (int)size, d,
                t.asked - t.defaulted, t.asked, *t.why ? ": " : "", t.why);
        o->asked += t.asked;
        o->advised += t.asked - t.defaulted;
    }
    if (!list || fclose(list) ||
        asprintf(&o->text, "the policy made %llu of %llu decisions (%s)", o->advised, o->asked,
                 each) < 0)
        o->text = "the policy did not make all decisions";
}

/* Did somebody, or a limit of the user's, end the compiler? */
static bool was_stopped(int status) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXCPU, SIGKILL, 0};
    int number = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status) - 128;
    for (const int *one = numbers; *one; one++)
        if (number == *one) return true;
    return false;
}

/* The flag of ours that the compiler complains about; NULL: none. */
static const char *rejected(const struct shmb_run *r, const char *said) {
    for (char *const *word = r->asking; *word; word++) {
        bool given = false;
        for (char *const *own = r->plain; *own; own++) given |= strcmp(*own, *word) == 0;
        if (given || **word != '-') continue;
        char *words = strdup(*word), *rest;
        for (char *part = strtok_r(words, " =", &rest); part; part = strtok_r(NULL, " =", &rest)) {
            part += strspn(part, "-");
            if (strlen(part) > sizeof "mllvm" && strstr(said, part)) return part;
        }
        free(words);
    }
    return NULL;
}

/* Appends the files with which LLVM's developers can repeat a crash. */
static void name_reproducers(const char *said) {
    static const char mark[] = "note: diagnostic msg: ";
    for (const char *at = said; (at = strstr(at, mark));) {
        char path[256];
        struct stat file;
        at += sizeof mark - 1;
        snprintf(path, sizeof path, "%.*s", (int)strcspn(at, "\n"), at);
        size_t used = strlen(why.message);
        if (*path == '/' && stat(path, &file) == 0 && used + sizeof path + 8 < sizeof why.message)
            sprintf(why.message + used, "; see %s", path);
    }
}

/* The signal, or the exit status. */
static const char *end_text(int status, char text[64]) {
    if (WIFSIGNALED(status)) snprintf(text, 64, "signal %d", WTERMSIG(status));
    else snprintf(text, 64, "exit status %d", WEXITSTATUS(status));
    return text;
}

/* Why the compiler did not succeed is its own, unless `why` says that it is the policy's. */
static bool fails_by_advice(struct shmb_run *r, int status, const char *report) {
    char ended[64];
    struct outcome all;
    bool loaded = !r->library, asked = strstr(report, "asking ");
    char program[SHMB_PROGRAM_BYTES], *said = text_of(held_errors());
    look(r, report, false, &all);
    const char *flag = said ? rejected(r, said) : NULL;
    loaded |= shmb_program_find(r->compiler, program) && shmb_report_loaded(report, program);
    if (!loaded)
        shmb_fail(&why, SHMB_SYSTEM, "%s failed and had not loaded %s: try --pipes", r->compiler,
                  r->library);
    else if (asked || all.asked)
        shmb_fail(&why, SHMB_SYSTEM, "%s failed with the policy's advice (%s)", r->compiler,
                  end_text(status, ended));
    else if (flag)
        shmb_fail(&why, SHMB_UNSUPPORTED, "%s does not know -%s, which LLVM 19 and later have",
                  r->compiler, flag);
    if (why.status && said) name_reproducers(said);
    free(said);
    return why.status;
}

static void say(const char *text) { fprintf(stderr, "shmbridge: %s\n", text); }

static int compile_plainly(const struct shmb_run *r) {
    int status = shmb_child_run(r->plain, environ, &streams, false);
    return status >= 0 ? status : shmb_child_become(r->plain) << 8;
}

static void warn(const struct shmb_run *r, enum shmb_build_failure kind, bool always) {
    bool first = shmb_build_failed(r->policy, kind);
    if (first || r->verbose || always) fprintf(stderr, shmb_build_warning, why.message);
}

/* Where the compiler failed, and plain clang does too, it was the user's mistake, and nothing is
 * said but what that prints. Only a terminal, which has both, gets a line between them. */
static int compile_again(struct shmb_run *r, enum shmb_build_failure kind, bool failed) {
    bool quiet = failed && held_errors() >= 0;
    bool always = failed && (!quiet || strstr(why.message, "; see "));
    if (r->strict) return -1;
    if (!quiet) warn(r, kind, always);
    int status = compile_plainly(r);
    if (quiet && status == 0) warn(r, kind, always);
    return status;
}

int shmb_run_end(shmb_run *r, int asked) {
    struct outcome lacking, all;
    char *report = text_of(r->report);
    if (asked < 0) return compile_again(r, SHMB_BUILD_OTHER, false);
    if (!report) return shmb_run_without(r, strerror(ENOMEM), false);
    look(r, report, true, &lacking);
    look(r, report, false, &all);
    if (all.advised) shmb_build_worked(r->policy);
    if (!shmb_child_signalled()) {
        if (lacking.lacks) {
            shmb_fail(&why, SHMB_SYSTEM, "%s", lacking.text);
            return compile_again(r,
                                 lacking.late   ? SHMB_BUILD_LATE
                                 : !all.advised ? SHMB_BUILD_USELESS
                                                : SHMB_BUILD_OTHER,
                                 false);
        }
        bool failed = asked != 0 && !was_stopped(asked) && fails_by_advice(r, asked, report);
        if (failed && (!r->strict || !all.asked)) return compile_again(r, SHMB_BUILD_OTHER, true);
    }
    shmb_streams_deliver(&streams);
    if (r->verbose ||
        (all.lacks && shmb_build_failed(r->policy, all.late ? SHMB_BUILD_LATE : SHMB_BUILD_OTHER)))
        say(all.text);
    return asked;
}

int shmb_run_without(shmb_run *r, const char *reason, bool late) {
    shmb_fail(&why, SHMB_SYSTEM, "%s", reason);
    return compile_again(r, late ? SHMB_BUILD_LATE : SHMB_BUILD_OTHER, false);
}

const char *shmb_run_why(void) { return why.message; }

int shmb_end_as(int status) {
    if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
    struct rlimit none;
    getrlimit(RLIMIT_CORE, &none);
    none.rlim_cur = 0;
    setrlimit(RLIMIT_CORE, &none);
    signal(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
    return 128 + WTERMSIG(status);
}
