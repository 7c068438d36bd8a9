/* No host, one that is killed or hangs, a model that fails, a stream that is not LLVM's: each
 * question gets advice. */
#include "llvm_channel.h"

static void three_then_death(struct bridge *b) {
    for (int i = 0; i < 3; i++) bridge_answer(b, bridge_receive(b));
    bridge_receive(b);
    kill(getpid(), SIGKILL);
}

static void three_then_nothing(struct bridge *b) {
    for (int i = 0; i < 3; i++) bridge_answer(b, bridge_receive(b));
    for (;;) pause();
}

static void failing(struct bridge *b) {
    for (;;) shmb_host_reply_error(b->host, bridge_receive(b), false, SHMB_MODEL, "no\nidea", 7);
}

/* Three answers of the model's if there was one, defaults from then on. */
static void ask_ten(bool model) {
    struct llvm_channel c;
    llvm_open(&c);
    for (int i = 0; i < 10; i++) CHECK(llvm_ask(&c, i, i) == (model && i < 3 ? i + 1 : i));
    llvm_close(&c);
}

static void lost(const char *text, bool header, float expected) {
    struct llvm_channel c;
    float advice[4] = {-1, -1, -1, -1};
    llvm_open_ends(&c);
    if (header) llvm_write(c.out, llvm_header, sizeof llvm_header - 1);
    llvm_write(c.out, text, strlen(text));
    CHECK(read(c.in, advice, 4) == 4 && advice[0] == expected);
    for (int i = 0; i < 3; i++) {
        llvm_write(c.out, "and so on", 9);
        CHECK(read(c.in, advice, 4) == 4);
    }
    llvm_close(&c);
}

int main(int argc, char **argv) {
    llvm_environment(argv);
    char name[64];
    ask_ten(false);
    lost("{\"observation\":0}\n 12 bytes.. ", true, 0);
    lost("no JSON\n", false, 0);
    lost("", false, 0);
    setenv("SHMBRIDGE_LLVM_DEFAULTS", "evict=1,priority=7,inline=0", 1);
    lost("no JSON\n", true, 7);
    unsetenv("SHMBRIDGE_LLVM_DEFAULTS");

    pid_t host = llvm_host(name, three_then_death, "");
    ask_ten(true);
    llvm_host_end(host, name);
    setenv("SHMBRIDGE_LLVM_URL", "shm://nobody?connect_timeout=0", 1);
    ask_ten(false);

    host = llvm_host(name, three_then_nothing, "&deadline=0.05");
    ask_ten(true);
    llvm_host_end(host, name);

    host = llvm_host(name, failing, "");
    ask_ten(false);
    llvm_host_end(host, name);
}
