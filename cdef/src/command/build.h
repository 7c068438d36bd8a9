/* What the commands of one build know of each other: the cache that started them, and whether the
 * policy has failed an earlier compilation. */
#ifndef SHMB_BUILD_H
#define SHMB_BUILD_H

#include <stdbool.h>

/* The cache (shmb_caches) among the processes that started this one, which will keep what it makes;
 * NULL: none. */
const char *shmb_build_cache(void);

/* Why a compilation goes on without the policy: the policy was late, it gave no advice at all (or
 * could not be loaded), or there is another reason. */
enum shmb_build_failure { SHMB_BUILD_OTHER, SHMB_BUILD_LATE, SHMB_BUILD_USELESS };

/* Notes that; true for the first such compilation of this build. A build is make, ninja or the like
 * and all that it starts; without one, a process group. The notes of a user are a file in
 * $XDG_RUNTIME_DIR or /tmp; where it cannot be used, every compilation is the first. */
bool shmb_build_failed(const char *policy, enum shmb_build_failure kind);
void shmb_build_worked(const char *policy);

/* What is printed then, once per build: a format with a place for the reason. */
extern const char shmb_build_warning[];

/* May a compilation of this build ask the policy? False, with the reason in `why`, when there is no
 * host at `url`, when the policy gave no advice to three compilations in a row, the last of them
 * within a minute, or when it was late within the last minute and no host there accepts a runner
 * now. Takes 50 ms at most. Looks at shm:// URLs only, and not where the URL wants to wait
 * for its host (connect_timeout); url NULL: the policy has no URL. */
enum { SHMB_WHY_BYTES = 512 };
bool shmb_build_asks(const char *policy, const char *url, char why[SHMB_WHY_BYTES]);

#endif
