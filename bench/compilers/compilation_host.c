/* The policy in C, for compilation.py. Prints its bridge's name, or a line, when it is ready.
 *     compilation_host shm CHANNELS [spin|block]
 *     compilation_host llvm BASE       LLVM's interactive channel, for one compiler */
#include "bridge.h"

#include "compilation.h"

static struct bridge b;

static void stop(int number) {
    (void)number;
    shmb_host_wake(b.host);
}

static void serve_shm(uint32_t channels, const char *wait) {
    shmb_plan plan = small_plan;
    plan.channels = channels;
    plan.slots = 8;
    bridge_open(&b, "compilation", plan,
                strcmp(wait, "spin") == 0    ? SHMB_WAIT_SPIN
                : strcmp(wait, "block") == 0 ? SHMB_WAIT_BLOCK
                                             : SHMB_WAIT_ADAPTIVE);
    signal(SIGTERM, stop);
    printf("%s\n", b.name);
    fflush(stdout);
    for (int64_t key; (key = shmb_host_receive(b.host, 100000000)) != -SHMB_INTERRUPTED;) {
        if (key < 0) continue;
        const shmb_message *m = shmb_host_message(b.host, key);
        int64_t features[FEATURES];
        CHECK(m->count == FEATURES);
        for (int i = 0; i < FEATURES; i++) features[i] = *(const int64_t *)m->tensors[i].data;
        reply_i64(b.host, key, false, advise(features));
    }
    bridge_close(&b);
}

static void serve_llvm(const char *base) {
    char in[400], out[400], *line = NULL;
    size_t room = 0;
    int64_t features[FEATURES];
    snprintf(in, sizeof in, "%s.in", base);
    snprintf(out, sizeof out, "%s.out", base);
    CHECK(mkfifo(in, 0600) == 0 && mkfifo(out, 0600) == 0);
    puts("ready");
    fflush(stdout);
    int reply = open(in, O_WRONLY);
    FILE *questions = fopen(out, "rb");
    CHECK(reply >= 0 && questions);
    while (getline(&line, &room, questions) > 0) {
        if (strncmp(line, "{\"observation\"", 14) != 0) continue;
        CHECK(fread(features, sizeof *features, FEATURES, questions) == FEATURES);
        CHECK(fgetc(questions) == '\n');
        int64_t advice = advise(features);
        CHECK(write(reply, &advice, sizeof advice) == sizeof advice);
    }
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    if (strcmp(argv[1], "shm") == 0) serve_shm((uint32_t)atoi(argv[2]), argc > 3 ? argv[3] : "");
    else serve_llvm(argv[2]);
}
