/* The compiler that `shmbridge run` starts: signals pass to it, and its standard streams can be held
 * back, so that another one can do its work again. */
#ifndef SHMB_CHILD_H
#define SHMB_CHILD_H

#include <stdbool.h>

/* A file without a name, for reports and streams; -1, with errno: there is no room for one. */
int shmb_unnamed_file(void);

/* What is held back of a compiler's streams; -1: nothing. All are files without a name. */
struct streams {
    int in;       /* all of our stdin, which can be read once */
    int out, err; /* what it prints. A terminal gets that at once */
    int pipe[2];  /* leads to `out`: a compiler looks whether it writes to a file or to a pipe */
    bool merged;  /* stdout and stderr are one file, and so stay in order */
};

/* reads_stdin: keep our stdin, too. False, with errno: there is no room for that. */
bool shmb_streams_hold(struct streams *s, bool reads_stdin);
/* Writes what was held back to our stdout and stderr. */
void shmb_streams_deliver(const struct streams *s);

/* Runs a command, which ends with NULL and $PATH finds, in an environment until it ends; held: with
 * these streams held back, else only stdin as it was kept. Like ours, it gets SIGTERM when this
 * process is killed. Returns its status as waitpid does; -1, with errno: it cannot be started. */
int shmb_child_run(char *const *command, char *const *environment, struct streams *s, bool held);
/* Was SIGINT, SIGTERM or SIGHUP passed to a compiler? */
bool shmb_child_signalled(void);
/* Becomes the command instead. Returns 127, after a message, if that is impossible. */
int shmb_child_become(char *const *command, const struct streams *s);

#endif
