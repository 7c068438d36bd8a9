/* A host counts its runners, names their claims and shows that it receives; what it and a runner
 * say of themselves is what `shmbridge inspect` reads. */
#include "base/order.h"
#include "bridge.h"
#include "host/host_channel.h"

static struct bridge b;
static shmb_segment_info info;
static shmb_channel_info channels[4];

/* Reads the segment as another program does; its descriptor. */
static int look(void) {
    char path[NAME_ROOM];
    shmb_segment_path(b.name, NULL, path);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && shmb_inspect(fd, &info, channels));
    return fd;
}

static bool receives(void) { return close(look()) == 0 && info.looping; }

/* The last request had so many numbers, as question `asked`. */
static void expect_told(int64_t numbers, uint64_t asked, bool waits) {
    int64_t count = 0;
    int fd = look();
    const shmb_channel_info *c = &channels[0];
    CHECK(c->alive && !c->connects && !c->poisoned && (pid_t)c->pid == getpid());
    CHECK(c->waits == waits && c->served == asked - waits);
    shmb_tensor *t = shmb_inspect_layout(fd, 0, false, &count);
    CHECK(t && count == 2 && strcmp(t->name, "x") == 0 && t->dtype == SHMB_FLOAT32);
    CHECK(t->rank == 1 && t->dims[0] == numbers);
    free(t);
    CHECK(!shmb_inspect_layout(fd, 1, false, &count) && !channels[2].alive && close(fd) == 0);
}

static int times_mapped(const char *file) {
    char line[512];
    int n = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    CHECK(maps);
    while (fgets(line, sizeof line, maps)) n += strstr(line, file) != NULL;
    fclose(maps);
    return n;
}

/* What the host's own program reads of a request. */
static void expect_read(int64_t key) {
    uint64_t number;
    uint32_t pid;
    int64_t offsets[3];
    char label[256];
    CHECK(shmb_host_runner(b.host, key, &number, &pid, label) && number == MAX_CHANNELS);
    CHECK((pid_t)pid == getpid() && !*label && !shmb_host_offsets(b.host, key, 0, offsets));
    CHECK(shmb_host_offsets(b.host, key, 1, offsets));
    CHECK(offsets[0] == 0 && offsets[1] == 1 && offsets[2] == 3);
}

/* It waits until all are answered, also out of order. */
static void expect_told_of_two(shmb_runner *r) {
    shmb_ticket t[2];
    int64_t keys[2];
    for (int i = 0; i < 2; i++) {
        t[i] = send_x(r, i);
        keys[i] = bridge_receive(&b);
    }
    for (int i = 1; i >= 0; i--) {
        CHECK(close(look()) == 0 && channels[0].waits);
        bridge_answer(&b, keys[i]);
    }
    CHECK(close(look()) == 0 && !channels[0].waits);
    for (int i = 0; i < 2; i++) CHECK_STATUS(r, shmb_receive(r, t[i]), SHMB_OK);
}

/* It keeps a runner waiting while it has no time, not while it takes another's question first. */
static void expect_delayed(shmb_runner *r, shmb_runner *other) {
    shmb_delay last = {0};
    shmb_runner *both[] = {r, other};
    for (int i = 0; i < 2; i++) {
        shmb_set_i64(both[i], "x", 1);
        CHECK_STATUS(both[i], shmb_runner_start(both[i], SHMB_ANY), SHMB_OK);
    }
    CHECK(shmb_host_delays(b.host, "", &last)); /* it is news */
    bridge_answer(&b, bridge_receive(&b));      /* the other's: the last was of r */
    CHECK(!shmb_host_delays(b.host, "", &last));
    CHECK(shmb_host_delays(b.host, "", &last)); /* it has received none since */
    bridge_answer(&b, bridge_receive(&b));
    for (int i = 0; i < 2; i++) CHECK_STATUS(both[i], bridge_result(both[i]), SHMB_OK);
    CHECK(!shmb_host_delays(b.host, "", &last));
}

/* Of a long label the end, where the names of files differ, and no part of a character. */
static void expect_a_whole_label(void) {
    char query[600] = "label=a", told[256];
    uint64_t number;
    uint32_t pid;
    for (int i = 0; i < LABEL_BYTES / 2; i++) strcat(query, "\xc3\xa9");
    shmb_runner *r = bridge_connect(&b, strcat(query, "b"));
    int64_t key = bridge_ask_x(&b, r, 1, SHMB_ANY);
    CHECK(shmb_host_runner(b.host, key, &number, &pid, told));
    CHECK(strcmp(told, query + strlen(query) - (LABEL_BYTES - 1)) == 0);
    bridge_answer(&b, key);
    CHECK_STATUS(r, bridge_result(r), SHMB_OK);
    shmb_close(r);
}

static void expect_silent_once_closed(shmb_runner *r) {
    shmb_delay last = {0};
    bridge_ask_x(&b, r, 1, SHMB_ANY);
    CHECK(shmb_host_delays(b.host, "", &last));
    shmb_host_close(b.host);
    CHECK(!shmb_host_delays(b.host, "", &last));
    CHECK(shmb_host_poll(b.host) == -SHMB_TIMEOUT);
    CHECK(shmb_host_receive(b.host, 0) == -SHMB_CLOSED);
}

int main(void) {
    bridge_open(&b, "tells", small_plan, SHMB_WAIT_DEFAULT);
    CHECK(!receives() && shmb_host_attached(b.host) == 0 && shmb_host_claim(b.host, 0) == -1);
    shmb_runner *r = bridge_connect(&b, ""), *other = bridge_connect(&b, "label=other");
    CHECK(receives() && shmb_host_attached(b.host) == 2);
    int mapped = times_mapped(b.name);
    for (int i = 1; i <= 3; i++) {
        CHECK(shmb_host_waiting(b.host) == 0);
        shmb_feature_f32(r, "x", 4 * i)[0] = 1;
        shmb_set_strings(r, "names", 2, (const char *const[]){"a", "bc"}, NULL);
        int64_t key = bridge_ask(&b, r, SHMB_ANY);
        expect_told(4 * i, (uint64_t)i, true);
        expect_read(key);
        CHECK(shmb_host_waiting(b.host) == 1);
        CHECK(shmb_host_reply(b.host, key, false, NULL, 0) == SHMB_OK);
        CHECK_STATUS(r, bridge_result(r), SHMB_OK);
        expect_told(4 * i, (uint64_t)i, false);
    }
    expect_told_of_two(r);
    expect_delayed(r, other);
    for (int i = -1; i <= (int)small_plan.channels; i++)
        CHECK(shmb_host_claim(b.host, i) == (i == 0 || i == 1 ? 1 : -1));
    int64_t nowhere = key_of(0, false, small_plan.channels, 0);
    CHECK(!shmb_host_message(b.host, nowhere));
    CHECK(reply_i64(b.host, nowhere, false, 1) == SHMB_INVALID);
    for (int i = 0; i < 2; i++) {
        shmb_host_rest(b.host);
        CHECK(!receives());
        CHECK(shmb_host_receive(b.host, 0) == -SHMB_TIMEOUT && receives());
    }
    shmb_host_wake(b.host);
    CHECK(shmb_host_receive(b.host, 0) == -SHMB_INTERRUPTED);
    CHECK(shmb_host_receive(b.host, 0) == -SHMB_TIMEOUT);
    CHECK(times_mapped(b.name) == mapped);
    uint64_t size;
    struct segment segment = {.base = shmb_host_memory(b.host, &size)};
    shmb_host_set_workers(b.host, 3);
    CHECK(load_relaxed(&shmb_segment_host_line(&segment)->workers) == 3);
    expect_a_whole_label();
    shmb_close(other);
    CHECK(shmb_host_receive(b.host, 0) == -SHMB_TIMEOUT && shmb_host_attached(b.host) == 1);
    expect_silent_once_closed(r);
    shmb_close(r);
    bridge_close(&b);
    CHECK(times_mapped(b.name) == 0);
}
