#include "process/library.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

/* What was tried, for the message: "PLACE (why), PLACE (why)". */
struct looked {
    char text[400];
    void *(*load)(const char *file, const char **why);
};

static void note(struct looked *at, const char *place, const char *why) {
    size_t used = strlen(at->text);
    snprintf(at->text + used, sizeof at->text - used, "%s%s (%.150s)", used ? ", " : "", place,
             why);
}

static void *load_library(const char *file, const char **why) {
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library) *why = dlerror(); /* usually begins with the file's name */
    return library;
}

static void *try(const char *file, struct looked *at) {
    const char *why = NULL;
    void *library = at->load(file, &why);
    if (!library) {
        size_t name = strlen(file);
        if (!why) why = "no reason given";
        note(at, file,
             strncmp(why, file, name) == 0 && strncmp(why + name, ": ", 2) == 0 ? why + name + 2
                                                                                : why);
    }
    return library;
}

/* A file that the user named: never looked for in the library path, as dlopen does where there is
 * no slash. */
static void *try_named(const char *file, struct looked *at) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s%s", strchr(file, '/') ? "" : "./", file);
    return try(path, at);
}

/* 1.10 before 1.9. */
static int later_first(const void *a, const void *b) {
    return -strverscmp(*(char *const *)a, *(char *const *)b);
}

static void *try_pattern(const char *pattern, struct looked *at) {
    void *library = NULL;
    glob_t found;
    if (glob(pattern, 0, NULL, &found)) {
        note(at, pattern, "no such file");
        return NULL;
    }
    qsort(found.gl_pathv, found.gl_pathc, sizeof *found.gl_pathv, later_first);
    for (size_t i = 0; i < found.gl_pathc && !library; i++) library = try(found.gl_pathv[i], at);
    globfree(&found);
    return library;
}

/* In the site-packages that this library itself lies in (shmbridge/lib/libshmbridge.so,
 * shmbridge/_native.abi3.so), and the virtual environment's. */
static void *try_packages(const char *package, struct looked *at) {
    static const char own_address;
    char pattern[PATH_MAX];
    void *library = NULL;
    Dl_info self;
    if (dladdr(&own_address, &self) && self.dli_fname && strrchr(self.dli_fname, '/')) {
        char *folder = strdup(self.dli_fname);
        for (int up = 0; folder && !library && up < 3; up++) {
            char *slash = strrchr(folder, '/');
            if (!slash) break;
            *slash = 0;
            const char *last = strrchr(folder, '/');
            /* site-packages, Debian's dist-packages */
            if (!last || !strstr(last, "-packages")) continue;
            snprintf(pattern, sizeof pattern, "%s/%s", folder, package);
            library = try_pattern(pattern, at);
        }
        free(folder);
    }
    const char *environment = secure_getenv("VIRTUAL_ENV");
    if (library || !environment || !*environment) return library;
    snprintf(pattern, sizeof pattern, "%s/lib/python3*/site-packages/%s", environment, package);
    return try_pattern(pattern, at);
}

/* Then there is no program interpreter, and dlopen would bring in a second C library, which
 * crashes. */
static bool program_is_static(void) {
    const ElfW(Phdr) *headers = (const ElfW(Phdr) *)getauxval(AT_PHDR);
    unsigned long count = getauxval(AT_PHNUM);
    for (unsigned long i = 0; headers && i < count; i++)
        if (headers[i].p_type == PT_INTERP) return false;
    return headers;
}

void *shmb_library_open(const struct library *l, struct error *e) {
    if (program_is_static()) {
        shmb_fail(e, SHMB_UNSUPPORTED,
                  "%s cannot be loaded into a program that is linked statically: link without "
                  "-static, or ask a host (shm://NAME)",
                  l->what);
        return NULL;
    }
    struct looked at = {.load = l->load ? l->load : load_library};
    const char *variable = l->variable ? secure_getenv(l->variable) : NULL;
    void *library = NULL;
    if (l->file) {
        library = try_named(l->file, &at);
    } else if (variable && *variable) {
        library = try_named(variable, &at);
    } else {
        if (l->package) library = try_packages(l->package, &at);
        for (int i = 0; !library && l->names && l->names[i]; i++) library = try(l->names[i], &at);
    }
    if (!library)
        shmb_fail(e, SHMB_INVALID, "%s does not load: %s: looked at %s", l->what, l->hint,
                  *at.text ? at.text : "no place");
    return library;
}

void *shmb_library_symbol(void *library, const char *file, const char *symbol, struct error *e) {
    void *address = dlsym(library, symbol);
    if (!address)
        shmb_fail(e, SHMB_INVALID,
                  "%.200s: expected a library that exports %.100s, found none of that name", file,
                  symbol);
    return address;
}

bool shmb_library_thread(pthread_t *thread, void *(*run)(void *)) {
    static const char own_address;
    Dl_info self;
    sigset_t every, before;
    if (dladdr(&own_address, &self))
        dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    bool started = pthread_create(thread, NULL, run, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}
