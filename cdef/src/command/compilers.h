/* What `shmbridge run` knows of compilers and of caches, in one place. All lists end with NULL. */
#ifndef SHMB_COMPILERS_H
#define SHMB_COMPILERS_H

#include <stdbool.h>
#include <stddef.h>

/* A decision, and LLVM's two flags that make a compiler ask about it. The second ends with the
 * channel's path: the compiler opens PATH.in, then PATH.out. */
typedef struct shmb_llvm_decision {
    const char *name, *advisor, *channel;
} shmb_llvm_decision;

extern const shmb_llvm_decision shmb_llvm_decisions[];

/* The advice for a decision, whose name has n bytes, in the user's defaults, "inline=0,evict=3",
 * and its bytes; NULL: none. */
const char *shmb_default_of(const char *defaults, const char *decision, size_t n, size_t *bytes);

/* The prefix of the channels inside a compiler. There never is such a file, and it is always the
 * same, because objects may record the command line. */
extern const char shmb_channel_base[];

/* A compiler's whole name, as a regular expression of POSIX and of Python. Groups 2 and 5: its kind
 * and its version. */
extern const char shmb_compiler_name[];

/* Words between which clang does not warn of flags that its step does not need. */
extern const char shmb_clang_unwarned[], shmb_clang_warned[];

/* What a compiler's command line, which ends with NULL, compiles: its only source file, or "".
 * or_output: else the name of the source that clang -cc1 is told, else the file that is made. */
const char *shmb_compiler_source(char *const *words, bool or_output);

/* Programs that would give an old policy's object out; and NAME=value, which keeps away those that
 * stand behind a compiler's name or in a script. */
extern const char *const shmb_caches[], *const shmb_build_tools[], *const shmb_cache_bypass[];

size_t shmb_word_count(char *const *words);
/* The word as a list has it; NULL: it has none. */
const char *shmb_listed(const char *const *list, const char *word);
enum { SHMB_PROGRAM_BYTES = 4096 }; /* PATH_MAX */
const char *shmb_file_name(const char *path);
/* Finds a program as execvp does and follows its links; false: there is none. */
bool shmb_program_find(const char *name, char path[SHMB_PROGRAM_BYTES]);
/* Does the preloaded library get into this program? Only into one for this machine that is linked
 * with the same C library dynamically. A script may start anything, so the answer for scripts is
 * no. */
bool shmb_program_preloads(const char *path);
/* Would it complain of the library, or fail with it? One for another machine or with another C
 * library would; static programs and scripts take no notice. */
bool shmb_program_refuses(const char *path);
/* Does a report say that the library got into the program at `path`? Each process that it is loaded
 * into appends a line "loaded 0 0 0 NAME". */
bool shmb_report_loaded(const char *report, const char *path);

#endif
