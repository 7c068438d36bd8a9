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

static int descriptor_of(const char *path) {
    struct stat file, fd;
    CHECK(stat(path, &file) == 0);
    for (int i = 3; i < 64; i++)
        if (fstat(i, &fd) == 0 && fd.st_ino == file.st_ino && fd.st_dev == file.st_dev) return i;
    return -1;
}

/* A process that dies closes its files in the order of their numbers: the next runner must not get
 * the lock while this one still looks connected. */
static void lock_is_closed_last(const struct pipes *p) {
    int out = open(pipes_name(p, "out"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    int in = open(pipes_name(p, "in"), O_RDWR | O_CLOEXEC), low = open("/dev/null", O_RDONLY);
    CHECK(in >= 0 && low >= 0 && dup2(out, 60) == 60 && dup2(in, 61) == 61);
    close(out);
    close(in);
    close(low);
    shmb_runner *r = pipes_connect(p);
    CHECK(descriptor_of(pipes_name(p, "in")) > descriptor_of(pipes_name(p, "out")));
    shmb_close(r);
    close(60);
    close(61);
}

static void one_runner_at_a_time(const struct pipes *p) {
    shmb_runner *first = pipes_connect(p);
    CHECK(try_open("pipe://%s?deadline=0.02", p->path, "another runner") == SHMB_BUSY);
    shmb_close(first);
    shmb_close(pipes_connect(p));
}

int main(void) {
    struct pipes p;
    char file[80];
    pipes_make(&p, "");
    CHECK(try_open("pipe://%s-none?connect_timeout=0.01", p.path, "there is no pipe") ==
          SHMB_NO_HOST);
    CHECK(try_open("pipe://%s?deadline=0.02", p.path, "no host reads") == SHMB_NO_HOST);
    CHECK(try_open("pipe://%s?serdes=morse", p.path, "bitstream, json") == SHMB_INVALID);
    CHECK(try_open("pipe://%s?baud=9600", p.path, "serdes, connect") == SHMB_INVALID);
    CHECK(try_open("pipe://", "", "names no pipes") == SHMB_INVALID);
    lock_is_closed_last(&p);
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
}
