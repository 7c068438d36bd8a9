#include "command/run.h"

#include <errno.h>
#include <signal.h>
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

static bool names(char *const *variables, const char *entry) {
    size_t n = strcspn(entry, "=") + 1;
    for (; *variables; variables++)
        if (strncmp(*variables, entry, n) == 0) return true;
    return false;
}

/* Writes the URL, and the deadline unless it has one. */
static void put_url(const shmb_run *r, FILE *to) {
    const char *query = strchr(r->url, '?'), *scheme = strstr(r->url, "://");
    bool has = false;
    for (const char *at = query; at; at = strchr(at, '&'))
        has |= strncmp(++at, "deadline=", 9) == 0;
    fprintf(to, "SHMBRIDGE_LLVM_URL=%s%s", scheme && (!query || scheme < query) ? "" : "shm://",
            r->url);
    if (r->deadline >= 0 && !has) fprintf(to, "%cdeadline=%.9f", query ? '&' : '?', r->deadline);
    fputc(0, to);
}

char **shmb_run_variables(const shmb_run *r, const char *report, const char *left) {
    char *texts = NULL;
    size_t size, n = 0;
    FILE *to = open_memstream(&texts, &size);
    const char *old = getenv("LD_PRELOAD");
    if (!to) return NULL;
    for (const char *const *one = shmb_cache_bypass; *one; one++) fprintf(to, "%s%c", *one, 0);
    fprintf(to, "SHMBRIDGE_LLVM_SOURCE=%s%c", r->source, 0);
    if (r->library) {
        fprintf(to, "LD_PRELOAD=%s%s%s%c", r->library, old && *old ? ":" : "", old ? old : "", 0);
        fprintf(to, "SHMBRIDGE_LLVM_BASE=%s%c", shmb_channel_base, 0);
        fprintf(to, "SHMBRIDGE_LLVM_DEFAULTS=%s%c", r->defaults, 0);
        fprintf(to, "SHMBRIDGE_LLVM_REPORT=%s%c", report, 0);
        if (left) fprintf(to, "SHMBRIDGE_LLVM_LIMIT=%s%c", left, 0);
        put_url(r, to);
    }
    if (fclose(to)) return free(texts), NULL;
    for (size_t at = 0; at < size; at += strlen(texts + at) + 1) n++;
    char **list = malloc((n + 1) * sizeof *list + size);
    char *text = list ? memcpy(list + n + 1, texts, size) : NULL;
    for (size_t i = 0; list && i < n; i++, text += strlen(text) + 1) list[i] = text;
    if (list) list[n] = NULL;
    free(texts);
    return list;
}

/* All variables of the compiler that asks; NULL, with errno: no room. */
static char **environment(const shmb_run *r) {
    char report[64], left[64] = "";
    int limit = r->library && r->limit >= 0 ? shmb_unnamed_file() : -1;
    snprintf(report, sizeof report, "/proc/%d/fd/%d", (int)getpid(), r->report);
    if (r->library && r->limit >= 0) {
        if (write(limit, &r->limit, sizeof r->limit) < 0) return NULL;
        snprintf(left, sizeof left, "/proc/%d/fd/%d", (int)getpid(), limit);
    }
    char **own = shmb_run_variables(r, report, *left ? left : NULL);
    size_t added = own ? shmb_word_count(own) : 0;
    char **all = own ? calloc(shmb_word_count(environ) + added + 2, sizeof *all) : NULL;
    char **next = all;
    if (!all) return NULL;
    for (char **entry = environ; *entry; entry++)
        if (!names(own, *entry)) *next++ = *entry;
    *next++ = "SHMBRIDGE_LLVM_ENDS=1";
    memcpy(next, own, added * sizeof *own);
    return all;
}

int shmb_run_ask(shmb_run *r) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    r->began = now.tv_sec * (long long)SECOND_NS + now.tv_nsec;
    char **all = environment(r);
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
    int status = shmb_child_run(r->asking, all, HELD_COMPILER, &streams);
    if (status < 0) shmb_fail_errno(&why, "the compiler cannot be started");
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
    char why[sizeof((struct error *)0)->message]; /* the first default's */
};

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

struct outcome {
    unsigned long long asked, advised;
    bool late, lacks; /* some decision had neither advice nor a default of the user's */
    struct error said;
};

/* The decisions that got advice, of all kinds or of those that lack it, and why the others did
 * not. */
static void look(const struct shmb_run *r, const char *report, bool lacking, struct outcome *o) {
    size_t size, room, bytes;
    char *each;
    FILE *list = open_memstream(&each, &room);
    memset(o, 0, sizeof *o);
    for (const char *d = r->decisions; list && *d; d += size, d += *d == ',') {
        struct tally t;
        size = strcspn(d, ",");
        tally(report, d, size, &t);
        bool chosen = !r->strict && shmb_default_of(r->defaults, d, size, &bytes);
        bool lacks = t.defaulted && (!chosen || !lacking);
        o->late |= t.late;
        o->lacks |= lacks;
        if (lacking && !lacks) continue;
        fprintf(list, "%s%.*s %llu of %llu%s%s", o->asked || ftell(list) ? "; " : "", (int)size, d,
                t.asked - t.defaulted, t.asked, *t.why ? ": " : "", t.why);
        o->asked += t.asked;
        o->advised += t.asked - t.defaulted;
    }
    bool made = list && !fclose(list);
    shmb_fail(&o->said, SHMB_SYSTEM, "the policy made %llu of %llu decisions (%s)", o->advised,
              o->asked, made ? each : "");
    if (made) free(each);
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
    int status = quiet ? shmb_child_run(r->plain, environ, COMPILER, &streams) : -1;
    if (!quiet || status == 0) warn(r, kind, always);
    if (status >= 0) return status;
    if (streams.reads) lseek(0, 0, SEEK_SET);
    return shmb_child_become(r->plain) << 8; /* nothing is left for this process, or for Python */
}

int shmb_run_end(shmb_run *r, int asked) {
    struct outcome lacking, all;
    char *report = text_of(r->report);
    if (asked < 0) return compile_again(r, SHMB_BUILD_OTHER, false);
    if (!report) return shmb_run_without(r, strerror(ENOMEM), SHMB_NO_MEMORY);
    look(r, report, true, &lacking);
    look(r, report, false, &all);
    if (all.advised) shmb_build_worked(r->policy);
    if (!shmb_child_signalled()) {
        if (streams.lost)
            return shmb_run_without(r, "no room to hold back what it prints", SHMB_NO_MEMORY);
        if (lacking.lacks) {
            enum shmb_build_failure kind = all.advised ? SHMB_BUILD_OTHER : SHMB_BUILD_USELESS;
            why = lacking.said;
            return compile_again(r, lacking.late ? SHMB_BUILD_LATE : kind, false);
        }
        bool failed = asked != 0 && !was_stopped(asked) && fails_by_advice(r, asked, report);
        if (failed && (!r->strict || !all.asked)) return compile_again(r, SHMB_BUILD_OTHER, true);
    }
    if (!shmb_streams_deliver(&streams)) {
        fprintf(stderr, "shmbridge: cannot write %s's output: %s\n", r->compiler, strerror(errno));
        if (!asked) return EXIT_FAILURE << 8;
    }
    if (r->verbose ||
        (all.lacks && shmb_build_failed(r->policy, all.late ? SHMB_BUILD_LATE : SHMB_BUILD_OTHER)))
        fprintf(stderr, "shmbridge: %s\n", all.said.message);
    return asked;
}

int shmb_run_without(shmb_run *r, const char *reason, shmb_status status) {
    enum shmb_build_failure kind = status == SHMB_TIMEOUT ? SHMB_BUILD_LATE : SHMB_BUILD_OTHER;
    if (status == SHMB_MODEL) kind = SHMB_BUILD_USELESS;
    shmb_fail(&why, SHMB_SYSTEM, "%s", reason);
    return compile_again(r, kind, false);
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
