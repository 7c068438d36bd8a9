#include "command/compilers.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const shmb_llvm_decision shmb_llvm_decisions[] = {
    {"inline", "-enable-ml-inliner=release", "-inliner-interactive-channel-base="},
    {"evict", "-regalloc-enable-advisor=release", "-regalloc-evict-interactive-channel-base="},
    {"priority", "-regalloc-enable-priority-advisor=release",
     "-regalloc-priority-interactive-channel-base="},
    {NULL, NULL, NULL},
};

const char *shmb_default_of(const char *defaults, const char *decision, size_t n, size_t *bytes) {
    for (const char *at = defaults; *at; at += *at == ',') {
        size_t entry = strcspn(at, ",");
        *bytes = entry > n ? entry - n - 1 : 0;
        if (entry > n && strncmp(at, decision, n) == 0 && at[n] == '=') return at + n + 1;
        at += entry;
    }
    return NULL;
}

const char shmb_compiler_name[] =
    "(.+-)?(clang|opt|llc|rustc|ld[.]lld)([+][+])?(-([0-9]+)([.][0-9]+)*)?";

const char shmb_channel_base[] = "/dev/null/shmbridge";
const char shmb_clang_unwarned[] = "--start-no-unused-arguments";
const char shmb_clang_warned[] = "--end-no-unused-arguments";

const char *shmb_listed(const char *const *list, const char *word) {
    while (*list && strcmp(*list, word) != 0) list++;
    return *list;
}

static bool is_source(const char *word) {
    static const char *const endings[] = {
        "C",   "C++",   "CC",  "CPP", "CXX",  "bc", "c",   "c++", "c++m", "cc",  "ccm",  "cl",
        "clc", "clcpp", "cp",  "cpp", "cppm", "cu", "cui", "cxx", "cxxm", "hip", "hipi", "hlsl",
        "i",   "ii",    "iim", "ixx", "ll",   "m",  "mi",  "mii", "mm",   "M",   "rs",   NULL};
    const char *dot = strrchr(shmb_file_name(word), '.');
    return dot && *word != '-' && shmb_listed(endings, dot + 1);
}

/* One whose ending says nothing: behind -c, or behind -x and a language. */
static bool stands_as_source(const char *earlier, const char *before, const char *word) {
    bool named = strcmp(earlier, "-x") == 0 && !strchr(before, '.'); /* a linker's -x is another */
    return !strchr("-@", *word) && (named || strcmp(before, "-c") == 0);
}

/* Is the word behind this one its value, and no input? */
static bool takes_value(const char *word) {
    static const char *const options[] = {"-D",       "-I",     "-MF",     "-MJ",      "-MQ",
                                          "-MT",      "-U",     "-Xclang", "-Xlinker", "-imacros",
                                          "-include", "-mllvm", "-o",      NULL};
    return shmb_listed(options, word);
}

const char *shmb_compiler_source(char *const *words, bool or_output) {
    const char *source = "", *output = "", *before = "", *earlier = "", *main = "";
    int sources = 0;
    for (; *words; earlier = before, before = *words++) {
        const char *word = *words;
        if (strcmp(before, "-main-file-name") == 0) main = strcmp(word, "-") ? word : "";
        else if (strcmp(before, "-o") == 0) output = word;
        else if (strncmp(word, "-o", 2) == 0 && word[2]) output = word + 2 + (word[2] == '=');
        else if (!takes_value(before) &&
                 (*main ? strcmp(shmb_file_name(word), main) == 0
                        : is_source(word) || stands_as_source(earlier, before, word))) {
            source = word;
            sources++;
        }
    }
    if (sources == 1) return source;
    if (!or_output) return "";
    return *main ? main : output; /* it reads a temporary file */
}

const char *const shmb_caches[] = {"buildcache", "ccache", "sccache", NULL};
const char *const shmb_build_tools[] = {"bazel", "cargo", "cmake", "gmake", "make",
                                        "meson", "ninja", "samu",  "scons", NULL};

/* For sccache there is none. */
const char *const shmb_cache_bypass[] = {"CCACHE_DISABLE=1", "BUILDCACHE_DISABLE=true",
                                         "DISTCC_HOSTS=localhost", "ICECC=disable", NULL};

/* ---- The compiler's program ---- */

size_t shmb_word_count(char *const *words) {
    size_t n = 0;
    while (words[n]) n++;
    return n;
}

const char *shmb_file_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool is_program(const char *path, char out[SHMB_PROGRAM_BYTES]) {
    struct stat file;
    return !access(path, X_OK) && !stat(path, &file) && S_ISREG(file.st_mode) &&
           realpath(path, out);
}

bool shmb_program_find(const char *name, char path[SHMB_PROGRAM_BYTES]) {
    if (strchr(name, '/')) return is_program(name, path);
    const char *folder = getenv("PATH");
    while (folder) {
        char candidate[SHMB_PROGRAM_BYTES];
        int bytes = (int)strcspn(folder, ":");
        int used =
            snprintf(candidate, sizeof candidate, "%.*s/%s", bytes, bytes ? folder : ".", name);
        if (used < SHMB_PROGRAM_BYTES && is_program(candidate, path)) return true;
        folder = folder[bytes] ? folder + bytes + 1 : NULL;
    }
    return false;
}

#if defined(__x86_64__)
enum { MACHINE = EM_X86_64 };
#else
enum { MACHINE = EM_AARCH64 };
#endif

#ifdef __GLIBC__
static const char linkers[] = "ld-linux";
#else
static const char linkers[] = "ld-musl";
#endif

enum loads { IGNORES, REFUSES, LOADS };

/* By the dynamic linker that the program names, if it does. */
static enum loads loads_by_linker(int fd, const Elf64_Ehdr *h) {
    for (int i = 0; i < h->e_phnum; i++) {
        Elf64_Phdr segment;
        char linker[SHMB_PROGRAM_BYTES] = "";
        off_t at = (off_t)h->e_phoff + i * (off_t)sizeof segment;
        if (pread(fd, &segment, sizeof segment, at) != sizeof segment) return REFUSES;
        if (segment.p_type != PT_INTERP) continue;
        if (segment.p_filesz >= sizeof linker ||
            pread(fd, linker, segment.p_filesz, (off_t)segment.p_offset) < 0)
            return REFUSES;
        bool ours = strncmp(shmb_file_name(linker), linkers, strlen(linkers)) == 0;
        return ours ? LOADS : REFUSES;
    }
    return IGNORES;
}

/* What the program at `path` does with the preloaded library. */
static enum loads loads_of(const char *path) {
    Elf64_Ehdr h;
    enum loads loads = IGNORES;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return IGNORES;
    if (read(fd, &h, sizeof h) == sizeof h && memcmp(h.e_ident, ELFMAG, SELFMAG) == 0) {
        bool native = h.e_ident[EI_CLASS] == ELFCLASS64 && h.e_machine == MACHINE &&
                      h.e_phentsize == sizeof(Elf64_Phdr);
        loads = native ? loads_by_linker(fd, &h) : REFUSES;
    }
    close(fd);
    return loads;
}

bool shmb_program_preloads(const char *path) { return loads_of(path) == LOADS; }

bool shmb_program_refuses(const char *path) { return loads_of(path) == REFUSES; }

bool shmb_report_loaded(const char *report, const char *path) {
    char *line;
    if (asprintf(&line, "loaded 0 0 0 %s\n", shmb_file_name(path)) < 0) return false;
    const char *found = report;
    while ((found = strstr(found, line)) && found > report && found[-1] != '\n') found++;
    free(line);
    return found;
}
