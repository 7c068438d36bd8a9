/* A status and its message: what was expected, what was found, what to do. */
#ifndef SHMB_ERROR_H
#define SHMB_ERROR_H

#include <stdbool.h>

#include "shmbridge.h"

struct error {
    shmb_status status;
    char message[2048];
};

#define TEXT_CUT "…" /* ends a text that was cut */
/* How much of a text of more than `room` bytes to keep before that: whole characters. */
size_t shmb_text_fit(const char *text, size_t room);

/* Replaces what would begin a line or move a terminal's cursor: texts come from peers, models and
 * files' names. */
void shmb_one_line(char *text);
/* Sets both and returns the status. A message that is too long ends with "…". It is one
 * line. */
__attribute__((cold, format(printf, 3, 4))) shmb_status shmb_fail(struct error *e,
                                                                  shmb_status status,
                                                                  const char *format, ...);
/* The same for a failed system call: appends errno's text. */
shmb_status shmb_fail_errno(struct error *e, const char *what);
/* Appends a name to a message's list of them, "a, b"; one that has no room in list[room] is left
 * out. */
__attribute__((cold)) void shmb_list_name(char *list, size_t room, const char *name);
/* Is it for good: does every later question of that runner end so? */
bool shmb_status_lasts(shmb_status status);

#endif
