/* The command `shmbridge`. `run` starts for every file of a build, and Python takes longer to start
 * than clang takes for a small one. So a run with --connect and clang, in which nothing goes wrong,
 * happens here. All else is Python's: shmbridge-python, beside this program. It also takes over
 * after a compilation that got no advice. shmbridge/cli/run.py says what a run is and does. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <regex.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "command/build.h"
#include "command/compilers.h"

#define PYTHON "shmbridge-python"
enum { DECISIONS = 3, NO_COMPILER = 127 };

struct run {
    const shmb_llvm_decision *decisions[DECISIONS + 1]; /* what to ask about */
    const char *host;
    double deadline; /* less than 0: the host says it */
    bool strict;
    char **command;
    char program[SHMB_PROGRAM_BYTES], *library, *base;
    int report; /* where the preloaded library writes what was asked */
};
static struct run the_run = {.deadline = -1};

static _Noreturn void give_up(void);

/* printf's text, the caller's. */
__attribute__((format(printf, 1, 2))) static char *text(const char *format, ...) {
    va_list arguments;
    char *made;
    va_start(arguments, format);
    if (vasprintf(&made, format, arguments) < 0) give_up();
    va_end(arguments);
    return made;
}

/* ---- What is done here ---- */

static bool add_decision(struct run *r, const char *name, size_t size) {
    const shmb_llvm_decision *d = shmb_llvm_decisions;
    while (d->name && (strlen(d->name) != size || strncmp(d->name, name, size) != 0)) d++;
    int n = 0;
    for (; r->decisions[n]; n++)
        if (r->decisions[n] == d) return false;
    r->decisions[n] = d;
    return d->name != NULL;
}

static bool read_decisions(struct run *r, const char *names) {
    memset(r->decisions, 0, sizeof r->decisions);
    for (size_t n;; names += n + 1) {
        n = strcspn(names, ",");
        if (!add_decision(r, names, n)) return false;
        if (!names[n]) return true;
    }
}

static bool read_deadline(struct run *r, const char *seconds) {
    char *end;
    r->deadline = strtod(seconds, &end);
    return *seconds && !*end && strspn(seconds, "0123456789.") == strlen(seconds);
}

/* The value of "--name value" or "--name=value", whose last word is then *words; NULL: another. */
static const char *option(char ***words, const char *name) {
    size_t n = strlen(name);
    const char *word = **words;
    if (!word || strncmp(word, name, n) != 0 || (word[n] && word[n] != '=')) return NULL;
    return word[n] ? word + n + 1 : *++*words;
}

/* Skips an option that only Python knows, and its value. */
static char **skip_option(char **words) {
    static const char *const flags[] = {
        "--pipes", "--include-default", "-v", "--verbose", "-h", "--help", NULL};
    for (const char *const *flag = flags; *flag; flag++)
        if (strcmp(*words, *flag) == 0) return words;
    return strchr(*words, '=') || !words[1] ? words : words + 1;
}

/* Reads the options and finds the command. False: Python has to read the options. */
static bool read_words(struct run *r, char **words) {
    const char *value;
    bool ours = true;
    for (; *words && **words == '-'; words++) {
        char **word = words;
        if (strcmp(*words, "--") == 0) {
            words++;
            break;
        }
        if (strcmp(*words, "--strict") == 0) r->strict = true;
        else if ((value = option(&words, "--llvm"))) ours &= read_decisions(r, value);
        else if ((value = option(&words, "--deadline"))) ours &= read_deadline(r, value);
        else if ((value = option(&words, "--connect"))) r->host = value;
        else {
            ours = false;
            words = skip_option(word);
        }
    }
    r->command = words;
    return ours && r->decisions[0] && r->host && *r->host && *words;
}

/* Is it clang, with files to read and write, and without a link that optimises, whose linker needs
 * flags too? */
static bool is_plain_clang(char **command) {
    char *pattern = text("^%s$", shmb_compiler_name);
    const char *name = shmb_file_name(command[0]);
    regex_t compiled;
    regmatch_t found[3];
    bool is =
        !regcomp(&compiled, pattern, REG_EXTENDED) && !regexec(&compiled, name, 3, found, 0) &&
        strncmp(name + found[2].rm_so, "clang", (size_t)(found[2].rm_eo - found[2].rm_so)) == 0;
    free(pattern);
    if (strchr(command[0], '=') || (command[1] && strncmp(command[1], "-cc1", 4) == 0))
        return false;
    for (char **word = command + 1; *word; word++)
        if (**word == '@' || strcmp(*word, "-") == 0 || strncmp(*word, "-flto", 5) == 0)
            return false;
    return is;
}

/* The library in the folder that is at `pattern` below this program's prefix; NULL unless there is
 * just one, which LD_PRELOAD can name. */
static char *library_at(const char *prefix, const char *pattern) {
    char *all = text("%s/%s/libshmbridge-preload.so", prefix, pattern);
    glob_t found;
    char *one = NULL;
    if (!strpbrk(prefix, " :*?[\\") && glob(all, GLOB_NOSORT, NULL, &found) == 0) {
        if (found.gl_pathc == 1) one = text("%s", found.gl_pathv[0]);
        globfree(&found);
    }
    free(all);
    return one;
}

static char *find_library(const char *folder) {
    char *prefix = text("%.*s", (int)(shmb_file_name(folder) - folder - 1), folder);
    char *found = library_at(prefix, "lib/python3*/*-packages/shmbridge/lib");
    if (!found) found = library_at(prefix, "lib64/python3*/*-packages/shmbridge/lib");
    if (!found) found = library_at(prefix, SHMB_LIBDIR); /* of cmake --install */
    free(prefix);
    return found;
}

static bool is_ours(struct run *r, char **words, const char *folder) {
    return words[0] && words[1] && strcmp(words[1], "run") == 0 && read_words(r, words + 2) &&
           is_plain_clang(r->command) && shmb_program_find(*r->command, r->program) &&
           shmb_program_preloads(r->program) && !shmb_build_cache() &&
           (r->library = find_library(folder));
}

/* ---- The compiler ---- */

static bool url_has(const char *query, const char *key) {
    for (size_t n = strlen(key); query; query = strchr(query, '&'))
        if (strncmp(++query, key, n) == 0 && query[n] == '=') return true;
    return false;
}

static char *url_of(const struct run *r) {
    const char *query = strchr(r->host, '?'), *scheme = strstr(r->host, "://");
    char *url = text("%s%s", scheme && (!query || scheme < query) ? "" : "shm://", r->host);
    if (r->deadline < 0 || url_has(query, "deadline")) return url;
    return text("%s%cdeadline=%.9f", url, query ? '&' : '?', r->deadline);
}

static void set_environment(const struct run *r, pid_t parent) {
    const char *old = getenv("LD_PRELOAD");
    if (!old) old = "";
    for (const char *const *variable = shmb_cache_bypass; *variable; variable++)
        putenv(text("%s", *variable));
    putenv(text("LD_PRELOAD=%s%s%s", r->library, *old ? ":" : "", old));
    putenv(text("SHMBRIDGE_LLVM_BASE=%s", r->base));
    putenv(text("SHMBRIDGE_LLVM_URL=%s", url_of(r)));
    putenv(text("SHMBRIDGE_LLVM_SOURCE=%s", shmb_compiler_source(r->command, false)));
    putenv(text("SHMBRIDGE_LLVM_DEFAULTS="));
    putenv(text("SHMBRIDGE_LLVM_REPORT=/proc/%d/fd/%d", (int)parent, r->report));
}

/* The command, asking. */
static char **asking(const struct run *r) {
    size_t n = 0, words = 0;
    while (r->command[words]) words++;
    char **made = calloc(words + 4 * DECISIONS + 5, sizeof *made);
    if (!made) give_up();
    made[n++] = r->command[0];
    made[n++] = text("%s", shmb_clang_unwarned);
    for (const shmb_llvm_decision *const *d = r->decisions; *d; d++) {
        made[n++] = "-mllvm";
        made[n++] = text("%s", (*d)->advisor);
        made[n++] = "-mllvm";
        made[n++] = text("%s%s.%s", (*d)->channel, r->base, (*d)->name);
    }
    made[n++] = text("%s", shmb_clang_warned);
    memcpy(made + n, r->command + 1, words * sizeof *made);
    return made;
}

static const int FORWARDED[] = {SIGINT, SIGTERM, SIGHUP};
enum { FORWARDED_COUNT = sizeof FORWARDED / sizeof *FORWARDED };
static volatile pid_t compiler;
static volatile sig_atomic_t signalled;

static void forward(int number) {
    signalled = true;
    if (compiler) kill(compiler, number);
}

/* Those that nohup and its like have told this process to ignore stay so. */
static void forward_signals(void) {
    struct sigaction old, new = {.sa_handler = forward};
    for (int i = 0; i < FORWARDED_COUNT; i++)
        if (sigaction(FORWARDED[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(FORWARDED[i], &new, NULL);
}

/* How the compiler ended, as waitpid says it. It gets SIGTERM when this process is killed. Signals
 * go to it, until it is reaped and its id may be another's. */
static int run_compiler(const struct run *r) {
    char **command = asking(r);
    pid_t parent = getpid();
    sigset_t forwarded, old;
    siginfo_t ended;
    int status = 0;
    sigemptyset(&forwarded);
    for (int i = 0; i < FORWARDED_COUNT; i++) sigaddset(&forwarded, FORWARDED[i]);
    sigprocmask(SIG_BLOCK, &forwarded, &old);
    if ((compiler = fork()) == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        sigprocmask(SIG_SETMASK, &old, NULL);
        set_environment(r, parent);
        if (getppid() == parent) execvp(command[0], command);
        fprintf(stderr, "shmbridge: %s: %s\n", command[0], strerror(errno));
        _exit(NO_COMPILER);
    }
    if (compiler > 0) forward_signals();
    sigprocmask(SIG_SETMASK, &old, NULL);
    if (compiler < 0) give_up();
    while (waitid(P_PID, (id_t)compiler, &ended, WEXITED | WNOWAIT) < 0 && errno == EINTR) continue;
    sigprocmask(SIG_BLOCK, &forwarded, NULL);
    waitpid(compiler, &status, 0);
    compiler = 0;
    sigprocmask(SIG_SETMASK, &old, NULL);
    return status;
}

/* Why a decision got no advice, or why none could; NULL: all is well. */
static const char *failure_of(const struct run *r, int status) {
    off_t size = lseek(r->report, 0, SEEK_END);
    char *rest, *report = calloc((size_t)size + 1, 1);
    if (!report || pread(r->report, report, (size_t)size, 0) < 0) return NULL;
    if (status && !shmb_report_loaded(report, r->program))
        return text("%s failed and had not loaded %s", r->command[0], r->library);
    unsigned long long defaulted;
    int why = 0;
    for (char *line = strtok_r(report, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        if (sscanf(line, "%*s %*u %llu %*d %n", &defaulted, &why) == 1 && defaulted)
            return line + why;
    return NULL;
}

/* ---- The program ---- */

/* Ends this process as the compiler ended, but without a core dump of its own. */
static int end_as(int status) {
    if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
    struct rlimit none;
    getrlimit(RLIMIT_CORE, &none);
    none.rlim_cur = 0;
    setrlimit(RLIMIT_CORE, &none);
    signal(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
    return 128 + WTERMSIG(status);
}

static bool prepare(struct run *r) {
    uint64_t random;
    if (getrandom(&random, sizeof random, 0) != sizeof random) return false;
    r->base = text("/tmp/shmbridge-%d-%016llx", (int)getpid(), (unsigned long long)random);
    return (r->report = memfd_create("shmbridge-report", MFD_CLOEXEC)) >= 0;
}

/* The compiler without advice, or with --strict not at all. */
static int do_without(const struct run *r, const char *why) {
    if (!r->command || !*r->command || r->strict) {
        fprintf(stderr, "shmbridge: %s\n", why);
        return 1;
    }
    if (shmb_build_failed(r->host ? r->host : PYTHON, false))
        fprintf(stderr, shmb_build_warning, why);
    execvp(*r->command, r->command);
    fprintf(stderr, "shmbridge: %s: %s\n", *r->command, strerror(errno));
    return NO_COMPILER;
}

/* There is no memory, or no process, for more. */
static void give_up(void) { exit(do_without(&the_run, strerror(errno))); }

/* After cmake --install alone there is no Python. why: the reason, if there is one that is not
 * this. */
static int become_python(const struct run *r, const char *folder, char **words, const char *why) {
    char *python = text("%s/" PYTHON, folder);
    execv(python, words);
    if (!why)
        why = text("%s: %s: install the Python package: pip install shmbridge", python,
                   strerror(errno));
    return do_without(r, why);
}

/* Removes the file that -o names. Python also finds the names that clang chooses. */
static void remove_output(char **command) {
    struct stat file;
    for (char **word = command; *word; word++)
        if (strcmp(*word, "-o") == 0 && word[1] && stat(word[1], &file) == 0 &&
            S_ISREG(file.st_mode))
            unlink(word[1]);
}

int main(int argc, char **argv) {
    char self[PATH_MAX] = "", why[SHMB_WHY_BYTES];
    struct run *r = &the_run;
    (void)argc;
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) strcpy(self, "/"); /* no Python */
    self[shmb_file_name(self) - self - 1] = 0;
    if (!is_ours(r, argv, self)) return become_python(r, self, argv, NULL);
    if (!shmb_build_asks(r->host, r->host, why))
        return r->strict ? become_python(r, self, argv, why) : do_without(r, why);
    if (!prepare(r)) return become_python(r, self, argv, NULL);
    int status = run_compiler(r);
    const char *failure = failure_of(r, status);
    if (signalled || !failure) return end_as(status);
    fcntl(r->report, F_SETFD, 0);
    putenv(text("SHMBRIDGE_RUN_ENDED=%d %d", r->report, status));
    int ended = become_python(r, self, argv, failure);
    if (r->strict) remove_output(r->command);
    return ended;
}
