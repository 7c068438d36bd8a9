/* What keeps a pipe runner from opening is told by its status: no pipes, nobody there, another
 * runner, something else. */
#include "pipes.h"

static shmb_status try_open(const char *format, const char *path, const char *expected) {
    char url[256];
    shmb_runner *r;
    snprintf(url, sizeof url, format, path);
    shmb_status status = shmb_open(url, NULL, &r);
    if (!strstr(shmb_error_message(r), expected))
        fprintf(stderr, "%s: %s\n", url, shmb_error_message(r));
    CHECK(strstr(shmb_error_message(r), expected));
    CHECK(shmb_evaluate(r) == status);
    shmb_close(r);
    return status;
}

static void one_runner_at_a_time(const struct pipes *p) {
    shmb_runner *first = pipes_connect(p);
    CHECK(try_open("pipe://%s?connect_timeout=0.02", p->path, "another runner") == SHMB_BUSY);
    shmb_close(first);
    shmb_close(pipes_connect(p));
}

int main(void) {
    struct pipes p;
    char file[80];
    pipes_make(&p, "");
    CHECK(try_open("pipe://%s-none?connect_timeout=0.01", p.path, "there is no pipe") ==
          SHMB_NO_HOST);
    CHECK(try_open("pipe://%s?connect_timeout=0", p.path, "no host reads") == SHMB_NO_HOST);
    CHECK(try_open("pipe://%s?serdes=morse", p.path, "bitstream, json") == SHMB_INVALID);
    CHECK(try_open("pipe://%s?baud=9600", p.path, "serdes, connect") == SHMB_INVALID);
    CHECK(try_open("pipe://", "", "names no pipes") == SHMB_INVALID);
    pipes_listen(&p);
    one_runner_at_a_time(&p);
    pipes_remove(&p);

    pipes_make(&p, "");
    snprintf(file, sizeof file, "%s.x.in", p.path);
    close(open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    CHECK(try_open("pipe://%s.x", p.path, "no named pipe") == SHMB_INVALID);
    unlink(file);
    if (geteuid() != 0) {
        CHECK(chmod(pipes_name(&p, "in"), 0) == 0);
        CHECK(try_open("pipe://%s", p.path, "does not admit") == SHMB_PERMISSION);
    }
    pipes_remove(&p);
    return 0;
}
