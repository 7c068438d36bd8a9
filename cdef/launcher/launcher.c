/* The command `shmbridge`. `run` starts for every file of a build, and Python takes longer to start
 * than clang takes for a small one. So a run with --connect and clang happens here, and one whose
 * policy gives no advice. All else is Python's: shmbridge-python, beside this program.
 * shmbridge/cli/run.py says what a run is. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <regex.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command/build.h"
#include "command/child.h"
#include "command/compilers.h"
#include "command/run.h"

#define PYTHON "shmbridge-python"

/* What the options say, all of one process. url NULL: the policy is to be started. */
static shmb_run run = {.deadline = -1, .defaults = "", .limit = -1};

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

/* The words, with an option and its value before words[at]. */
static char **with_option(char *const *words, size_t at, char *option, char *value) {
    size_t n = shmb_word_count(words);
    char **all = calloc(n + 3, sizeof *all);
    if (!all) give_up();
    memcpy(all, words, at * sizeof *all);
    all[at] = option;
    all[at + 1] = value;
    memcpy(all + at + 2, words + at, (n - at) * sizeof *all);
    return all;
}

/* ---- What is done here ---- */

static const shmb_llvm_decision *find_decision(const char *name, size_t size) {
    for (const shmb_llvm_decision *d = shmb_llvm_decisions; d->name; d++)
        if (strlen(d->name) == size && strncmp(d->name, name, size) == 0) return d;
    return NULL;
}

/* Each is known, and comes once. */
static bool read_decisions(const char *names) {
    unsigned seen = 0;
    run.decisions = names;
    for (size_t n;; names += n + 1) {
        n = strcspn(names, ",");
        const shmb_llvm_decision *d = find_decision(names, n);
        if (!d || seen >> (d - shmb_llvm_decisions) & 1) return false;
        seen |= 1u << (d - shmb_llvm_decisions);
        if (!names[n]) return true;
    }
}

static bool read_deadline(const char *seconds) {
    char *end;
    run.deadline = strtod(seconds, &end);
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
    static const char *const flags[] = {"--pipes", "--include-default", "-h", "--help", NULL};
    return shmb_listed(flags, *words) || strchr(*words, '=') || !words[1] ? words : words + 1;
}

/* Reads the options and finds the command. False: Python has to read the options. */
static bool read_words(char **words) {
    const char *value;
    bool ours = true;
    for (; *words && **words == '-'; words++) {
        char **word = words;
        if (strcmp(*words, "--") == 0) {
            words++;
            break;
        }
        if (strcmp(*words, "--strict") == 0) run.strict = true;
        else if (strcmp(*words, "-v") == 0 || strcmp(*words, "--verbose") == 0) run.verbose = true;
        else if ((value = option(&words, "--llvm"))) ours &= read_decisions(value);
        else if ((value = option(&words, "--deadline"))) ours &= read_deadline(value);
        else if ((value = option(&words, "--connect"))) run.policy = run.url = value;
        else if ((value = option(&words, "--host")) || (value = option(&words, "--onnx")))
            run.policy = value, ours = false;
        else {
            ours = false;
            words = skip_option(word);
        }
    }
    run.plain = words;
    return ours && run.decisions && run.url && *run.url && *words;
}

/* Does clang get words from elsewhere, or flags of LLVM that may stand against ours? Python
 * looks. */
static bool says_more(const char *word) {
    return *word == '@' || strncmp(word, "--config", 8) == 0 || strstr(word, "mllvm") ||
           strncmp(word, "-fthinlto-", 10) == 0;
}

/* Is it clang, without a link that optimises, whose linker needs flags too? */
static bool is_plain_clang(char *const *command) {
    char *pattern = text("^%s$", shmb_compiler_name);
    const char *name = shmb_file_name(command[0]);
    regex_t compiled;
    regmatch_t found[3];
    bool is =
        !regcomp(&compiled, pattern, REG_EXTENDED) && !regexec(&compiled, name, 3, found, 0) &&
        strncmp(name + found[2].rm_so, "clang", (size_t)(found[2].rm_eo - found[2].rm_so)) == 0;
    free(pattern);
    if (strchr(command[0], '=') || (command[1] && strncmp(command[1], "-cc1", 4) == 0) ||
        getenv("CCC_OVERRIDE_OPTIONS"))
        return false;
    for (char *const *word = command + 1; *word; word++)
        if (says_more(*word) || strncmp(*word, "-flto", 5) == 0) return false;
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

static bool is_ours(char **words, const char *folder) {
    char program[SHMB_PROGRAM_BYTES];
    return words[0] && words[1] && strcmp(words[1], "run") == 0 && read_words(words + 2) &&
           is_plain_clang(run.plain) && shmb_program_find(*run.plain, program) &&
           shmb_program_preloads(program) && !shmb_build_cache() &&
           (run.library = find_library(folder));
}

/* ---- The compiler ---- */

static char **asking(void) {
    enum { ADDED = 16 };
    size_t n = 0, words = shmb_word_count(run.plain), size;
    char **made = calloc(words + ADDED, sizeof *made);
    if (!made) give_up();
    made[n++] = run.plain[0];
    made[n++] = text("%s", shmb_clang_unwarned);
    for (const char *name = run.decisions; *name; name += size + (name[size] == ',')) {
        const shmb_llvm_decision *d = find_decision(name, size = strcspn(name, ","));
        made[n++] = "-mllvm";
        made[n++] = text("%s", d->advisor);
        made[n++] = "-mllvm";
        made[n++] = text("%s%s.%s", d->channel, shmb_channel_base, d->name);
    }
    made[n++] = text("%s", shmb_clang_warned);
    memcpy(made + n, run.plain + 1, words * sizeof *made);
    return made;
}

/* ---- The program ---- */

/* After cmake --install alone there is no Python. Returns why it cannot be had. */
static const char *become_python(const char *folder, char **words) {
    char *python = text("%s/" PYTHON, folder);
    execv(python, words);
    return text("%s: %s: install the Python package: pip install shmbridge", python,
                strerror(errno));
}

static const char unbegun[] =
    "Python cannot start, or takes more than a minute: expected $PYTHONHOME, $PYTHONPATH and their "
    "like to be unset or for the Python of shmbridge";

/* No memory, no process, or no Python: only one that has not begun is likely to last. */
static int do_without(const char *why) {
    if (!run.plain || !*run.plain || run.strict) {
        fprintf(stderr, "shmbridge: %s\n", why);
        return 1;
    }
    enum shmb_build_failure kind = why == unbegun ? SHMB_BUILD_USELESS : SHMB_BUILD_OTHER;
    if (shmb_build_failed(run.policy ? run.policy : PYTHON, kind))
        fprintf(stderr, shmb_build_warning, why);
    return shmb_child_become(run.plain);
}

static void give_up(void) { exit(do_without(strerror(errno))); }

/* Ends as our Python does. Returns why that has not begun: the environment may be made for another
 * one, or a package may be broken or hang. */
static const char *run_in_python(const char *folder, char **words) {
    int begun[2];
    char byte, *python = text("%s/" PYTHON, folder);
    if (!run.plain || !*run.plain || access(python, X_OK) || pipe2(begun, O_NONBLOCK))
        return become_python(folder, words);
    char **all = with_option(words, 1, "--begun", text("%d", begun[1]));
    all[0] = python;
    fcntl(begun[0], F_SETFD, FD_CLOEXEC);
    unsetenv("PYTHONINSPECT"); /* at its end it would read from the terminal */
    int status = shmb_child_run(all, environ, OUR_PYTHON, NULL);
    close(begun[1]);
    if (status < 0) return strerror(errno);
    if (read(begun[0], &byte, 1) == 1 || shmb_child_signalled()) exit(shmb_end_as(status));
    return unbegun;
}

/* Removes the file that -o names. Python also finds the names that clang chooses. */
static void remove_output(char *const *command) {
    struct stat file;
    for (char *const *word = command; *word; word++)
        if (strcmp(*word, "-o") == 0 && word[1] && stat(word[1], &file) == 0 &&
            S_ISREG(file.st_mode))
            unlink(word[1]);
}

/* With --strict nothing stays of what was compiled since then. */
static int refuse(const char *folder, char **words) {
    char *what = text("%lld %s", run.began, shmb_run_why());
    run_in_python(folder, with_option(words, 2, "--failed", what));
    fprintf(stderr, "shmbridge: %s\n", shmb_run_why());
    remove_output(run.plain);
    return 1;
}

/* A stream that is closed must not become a file of ours, and children are waited for. Where stdout
 * is closed, a command that works prints nowhere, as clang does by itself, and one whose purpose is
 * what it prints fails. */
static void use_usual_streams_and_signals(const char *command) {
    static const char *const work[] = {"run", "serve", "relay", NULL};
    bool works = command && shmb_listed(work, command);
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0) open("/dev/null", fd != 1 || works ? O_RDWR : O_RDONLY);
    signal(SIGCHLD, SIG_DFL);
    signal(SIGPIPE, SIG_IGN); /* nobody need read our messages */
    signal(SIGXFSZ, SIG_IGN); /* a file that cannot grow is an error, as in Python */
}

int main(int argc, char **argv) {
    char self[PATH_MAX] = "", program[SHMB_PROGRAM_BYTES], why[SHMB_WHY_BYTES];
    use_usual_streams_and_signals(argc > 1 ? argv[1] : NULL);
    /* without /proc, too */
    if (!realpath((const char *)getauxval(AT_EXECFN), self)) strcpy(self, "/"); /* no Python */
    self[shmb_file_name(self) - self - 1] = 0;
    bool ours = is_ours(argv, self);
    bool asks = !run.policy || shmb_build_asks(run.policy, run.url, why);
    /* Python keeps a cache in front from storing what was compiled without the policy. */
    bool plainly = !asks && !run.strict && !shmb_build_cache() && *run.plain &&
                   shmb_program_find(*run.plain, program);
    if (!ours && !plainly) return do_without(run_in_python(self, argv));
    run.report = shmb_unnamed_file();
    if (run.report < 0) give_up();
    run.compiler = run.plain[0];
    run.source = shmb_compiler_source(run.plain, false);
    run.asking = asks ? asking() : run.plain;
    int status =
        asks ? shmb_run_end(&run, shmb_run_ask(&run)) : shmb_run_without(&run, why, SHMB_SYSTEM);
    return status < 0 ? refuse(self, argv) : shmb_end_as(status);
}
