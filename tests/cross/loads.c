/* A host takes a request, answers it, and a runner takes the reply, all in this thread, with a read
 * of `mark` between. Prints where the segment is mapped, and where mark is. For valgrind's
 * lackey. */
#include "../c/bridge.h"

static volatile char mark;

/* The C library's loads the middle of some copies twice, which does no harm: one copy is
 * checked. */
void *memcpy(void *restrict to, const void *restrict from, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) ((char *)to)[i] = ((const volatile char *)from)[i];
    return to;
}

static void print_mappings(const char *name) {
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps))
        if (strstr(line, name)) printf("map %s", line);
    fclose(maps);
}

static void fill(shmb_runner *r) {
    shmb_set_string(r, "echo", "text", -1);
    memset(shmb_feature_ragged(r, "rows", SHMB_INT8, 2, (const int64_t[]){3, 2}, 1, NULL), 1, 5);
}

int main(void) {
    struct bridge b;
    bridge_open(&b, "loads", small_plan, SHMB_WAIT_BLOCK);
    shmb_runner *r = bridge_connect(&b, "wait=block");
    print_mappings(b.name);
    printf("mark %p\n", (void *)(uintptr_t)&mark);
    fflush(stdout);
    for (int known = 0; known < 2; known++) { /* a new layout, then the same one */
        fill(r);
        CHECK_STATUS(r, shmb_runner_start(r, SHMB_ANY), SHMB_OK);
        (void)mark;
        int64_t key = shmb_host_receive(b.host, 1000000000);
        (void)mark;
        CHECK(key >= 0);
        bridge_echo(&b, key, false);
        (void)mark;
        CHECK_STATUS(r, bridge_result(r), SHMB_OK);
        (void)mark;
    }
    shmb_close(r);
    bridge_close(&b);
    return 0;
}
