/* The compiler that `shmbridge run` starts: signals pass to it, and its streams can be held
 * back, so that another one can do its work again. */
#ifndef SHMB_CHILD_H
#define SHMB_CHILD_H

#include <stdbool.h>

/* A file without a name, for reports and streams; -1, with errno: there is no room for one. */
int shmb_unnamed_file(void);

/* What is held back of what a compiler prints: pipes, since a compiler that is told to write to
 * /dev/stdout would replace a file there, and files without a name; -1: nothing. A terminal gets it
 * at once. */
struct held {
    int pipe[2], kept;
};
struct streams {
    struct held out, err; /* err is not held where both are one file: out has both, in order */
    bool merged, reads;
    bool lost; /* not all that was printed could be kept */
};

/* False, with errno: there is no room for that. */
bool shmb_streams_hold(struct streams *s);
/* Can the files that a command names be opened twice? Those that cannot, but that are descriptors
 * of ours such as /dev/stdin and the shell's <(...), are read, and replaced by what was read; so is
 * stdin if the compiler `reads` it. False: *word names another one, or there is no room. */
bool shmb_streams_keep(struct streams *s, char *const *command, bool reads, const char **word);
/* Writes what was held back to our stdout and stderr. False, with errno: not all of it. */
bool shmb_streams_deliver(const struct streams *s);

enum child_kind { COMPILER, HELD_COMPILER, OUR_PYTHON };
/* Runs a command, which ends with NULL and $PATH finds, in an environment until it ends. When this
 * process is killed, a compiler gets SIGTERM. OUR_PYTHON needs no streams; it gets SIGKILL then,
 * and SIGALRM after a minute unless it calls alarm(0). Returns its status as waitpid does; -1, with
 * errno: it cannot be started. */
int shmb_child_run(char *const *command, char *const *environment, enum child_kind kind,
                   struct streams *s);
/* Was SIGINT, SIGTERM or SIGHUP passed to a compiler? */
bool shmb_child_signalled(void);
/* Becomes the command instead. Returns 127, after a message, if that is impossible. */
int shmb_child_become(char *const *command);

#endif
