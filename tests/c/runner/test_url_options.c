/* What a URL may say, and the message for what it may not. */
#include <math.h>

#include "bridge.h"
#include "runner/runner.h"

static void good(const char *url, const char *scheme_expected, const char *where_expected,
                 double connect, double deadline, shmb_wait wait) {
    struct url parts;
    shmb_options o = {.size = sizeof o};
    struct error e = {0};
    CHECK(shmb_url_split(url, &parts, &o, &e) == SHMB_OK);
    CHECK(strcmp(parts.scheme, scheme_expected) == 0 && strcmp(parts.where, where_expected) == 0);
    CHECK(o.connect_timeout == connect && o.deadline == deadline && o.wait == wait);
}

static void bad(const char *url, const char *message) {
    open_fails(url, NULL, SHMB_INVALID, message);
}

int main(void) {
    good("x", "shm", "x", 0, 0, 0);
    good("shm://x", "shm", "x", 0, 0, 0);
    good("x?connect_timeout=2", "shm", "x", 2, 0, 0);
    good("pipe:///a/b?deadline=0.5s", "pipe", "/a/b", 0, 0.5, 0);
    good("shm://x?connect_timeout=500ms&deadline=250us&wait=spin", "shm", "x", 0.5, 0.00025,
         SHMB_WAIT_SPIN);
    good("shm://x?wait=block&wait=adaptive", "shm", "x", 0, 0, SHMB_WAIT_ADAPTIVE);
    good("shm://x?connect_timeout=0", "shm", "x", 0, 0, 0); /* do not wait */
    good("shm://x?&", "shm", "x", 0, 0, 0);
    good("shm://x?deadline=.5", "shm", "x", 0, 0.5, 0);
    good("shm://x?deadline=inf", "shm", "x", 0, INFINITY, 0);

    struct url parts;
    shmb_options all = {.size = sizeof all};
    struct error e = {0};
    CHECK(shmb_url_split("pipe://a?serdes=json&connect_timeout=1&x=1", &parts, &all, &e) ==
          SHMB_OK);
    CHECK(strcmp(shmb_url_take(&parts, "serdes"), "json") == 0 && !shmb_url_take(&parts, "serdes"));
    CHECK(shmb_url_done(&parts, "serdes, ", &e) == SHMB_INVALID && strstr(e.message, "\"x\"") &&
          strstr(e.message, "serdes"));

    bad("shm://x?connect_timeout", "connect_timeout=");
    bad("shm://x?connect_timeout=", "expected seconds");
    bad("shm://x?connect_timeout=-1", "expected seconds");
    bad("shm://x?connect_timeout=nan", "expected seconds");
    bad("shm://x?deadline=1h", "expected seconds");
    bad("shm://x?deadline=1e3", "expected seconds");
    bad("shm://x?wait=sleep", "adaptive, spin or block");
    bad("shm://x?color=blue", "color");
    bad("", "SHMBRIDGE_URL");
    bad("shm://", "not a bridge name");
    bad("shm://a/b", "not a bridge name");
    bad("shm://.x", "not a bridge name");
    char name[120];
    memset(name, 'n', sizeof name);
    name[101] = 0;
    bad(name, "not a bridge name");
    char long_url[5000];
    memset(long_url, 'u', sizeof long_url);
    long_url[sizeof long_url - 1] = 0;
    bad(long_url, "longer");

    for (int options = URL_OPTIONS; options <= URL_OPTIONS + 1; options++) {
        char many[URL_ROOM] = "shm://x?";
        for (int i = 0; i < options; i++) strcat(many, "x=1&");
        bad(many, options == URL_OPTIONS ? "unknown option" : "more than 64 options");
    }

    unsetenv("SHMBRIDGE_URL");
    bad(NULL, "SHMBRIDGE_URL");
    setenv("SHMBRIDGE_URL", "shm://from-the-environment?connect_timeout=0", 1);
    open_fails(NULL, NULL, SHMB_NO_HOST, "from-the-environment");
    shmb_options o = {.size = 3};
    open_fails("x", &o, SHMB_INVALID, "");
    o = (shmb_options){.size = sizeof o, .wait = (shmb_wait)7};
    open_fails("x", &o, SHMB_INVALID, "");
}
