/* A compilation that asks a policy, and again without it where the policy, or what it advised, is
 * why it failed: what `shmbridge run` decides, for cdef/launcher and, through cffi, for Python. */
#ifndef SHMB_RUN_H
#define SHMB_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "shmbridge.h"

/* All is the caller's, and lives as long as the run. Lists end with NULL. */
typedef struct shmb_run {
    const char *policy;    /* as the user named it, for the notes of a build */
    const char *url;       /* the host's */
    double deadline;       /* of a decision, in seconds, unless the URL has one; < 0: the host's */
    const char *decisions; /* what is asked: "inline,evict" */
    const char *defaults;  /* the user's advice for want of the policy's: "inline=0" */
    int64_t limit;         /* how many decisions are asked about; < 0: all */
    const char *library;   /* the preloaded one; NULL: there are pipes */
    const char *compiler;  /* its name, as it stands in the commands */
    const char *source;    /* what is compiled, or "" */
    char *const *plain;    /* the command as it was given */
    char *const *asking;   /* the same, with what makes the compiler ask */
    int report;            /* the file in which the compiler says what it was asked */
    bool reads_stdin;      /* though no word says so */
    bool strict, verbose;
    long long began; /* out: when it was started, as files' times have it, in nanoseconds */
} shmb_run;

/* NAME=value, for a compiler that asks: where the preloaded library reports, and the file of an
 * int64_t that says how many decisions are left to ask about, NULL: all. cdef/preload/preload.c
 * says what each means. The list and its texts are the caller's; NULL: no memory. */
char **shmb_run_variables(const shmb_run *r, const char *report, const char *left);
/* Compiles and asks. Returns how that ended, as waitpid does; -1, with errno: it did not start. */
int shmb_run_ask(shmb_run *r);
/* What came of it, once the report is complete: keeps what was made, or compiles plainly. Returns
 * how that ended, as waitpid does; -1: strict forbids it, and shmb_run_why says what. */
int shmb_run_end(shmb_run *r, int asked);
/* Compiles plainly because nothing can be asked: the policy is late (SHMB_TIMEOUT), could not be
 * loaded (SHMB_MODEL), or there is another reason. Returns as shmb_run_end. */
int shmb_run_without(shmb_run *r, const char *why, shmb_status status);
const char *shmb_run_why(void);
/* Ends this process as a compiler ended that a signal ended, but without a core dump of its own;
 * else returns its exit status. */
int shmb_end_as(int status);

#endif
