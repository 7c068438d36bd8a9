/* What `shmbridge run` knows of compilers and of caches, in one place: cdef/launcher reads it, and
 * Python through cffi. All lists end with NULL. */
#ifndef SHMB_PIPE_COMPILERS_H
#define SHMB_PIPE_COMPILERS_H

#include <stdint.h>

/* A decision, and LLVM's two flags that make a compiler ask about it. The second ends with the
 * channel's path: the compiler opens PATH.in, then PATH.out. */
typedef struct shmb_llvm_decision {
    const char *name, *advisor, *channel;
} shmb_llvm_decision;

extern const shmb_llvm_decision shmb_llvm_decisions[];

/* A compiler's whole name, as a regular expression of POSIX and of Python. Groups 2 and 5: its kind
 * and its version. */
extern const char shmb_compiler_name[];

/* Words between which clang does not warn of flags that its step does not need. */
extern const char shmb_clang_unwarned[], shmb_clang_warned[];

/* Programs that would give an old policy's object out; and NAME=value, which keeps away those that
 * stand behind a compiler's name or in a script. */
extern const char *const shmb_caches[], *const shmb_cache_bypass[];

/* Seconds that a decision may take, unless the user says otherwise. */
extern const double shmb_llvm_deadline;

enum { SHMB_SUMMARY_BYTES = 8192 };
/* One line on what was asked, and how many decisions took the default advice. It names those that
 * did, and those in `always`, a text. report: a line "DECISION asked defaulted status why" for each
 * channel. */
uint64_t shmb_llvm_summary(const char *report, const char *always, char text[SHMB_SUMMARY_BYTES]);

#endif
