/* Kills hosts and runners, and keeps a ledger of every question: whether it was asked, how often a
 * host received it, and what came of it. Built with SHMB_STEPS.
 * Usage: NAME VICTIM HOW KILLS SECONDS LANES SEED
 *   VICTIM  host       a host; its runner must have an answer, a default or an error for each
 *                      question
 *           runner     a runner; the host serves the others
 *           retrying   a host, under a runner with retries, which must have every answer
 *   HOW     step       before each store to the segment, one after another
 *           random     at any moment
 *           stop       stopped before each store for 0.3 s, which must change nothing; not under
 *                      retries
 * Lanes are processes with a bridge each, since most of the time goes by in waiting. It ends
 * after so many kills or seconds with one line of JSON; a broken promise is described on stderr. */
#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <poll.h>

#include "../c/bridge.h"
#include "runner/default.h"

enum { QUESTIONS = 12, IN_FLIGHT = 7, ASKED = QUESTIONS + IN_FLIGHT };
enum {
    VICTIMS = 16,
    RETRYING = 4,
    LIMIT = VICTIMS * ASKED,
    LATENCIES = 1 << 17,
    LONGEST_NS = 20000000
};
enum outcome { NONE, ANSWERED, DEFAULT, ERROR };

/* Of one question. Each side writes its own fields, just before or after the event. */
struct entry {
    _Atomic int asked, received, replied, outcome;
};

struct book { /* shared by the processes of a lane */
    struct entry entries[LIMIT];
    _Atomic bool stop;         /* the host is to end */
    _Atomic int64_t failed_ns; /* the runner's first failure */
};

static struct totals {
    _Atomic long kills, asked, answered, defaults, errors, open, repeated, latencies, steps;
    _Atomic int32_t latency_us[LATENCIES];
} *totals;

static struct book *lane;
static const char *victim, *how;
static char name[64];
static unsigned seed;
static pid_t last_host;
static int lanes;
static long first_step; /* of this lane */

static long kills;
static int64_t until_ns;

static bool enough(void) { return totals->kills >= kills || shmb_clock_ns() > until_ns; }
static bool stops(void) { return strcmp(how, "stop") == 0; }

static void *shared(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

/* A child that is killed with its parent, perhaps one that stops before a store. */
static pid_t start(long step) {
    rand_r(&seed);
    pid_t parent = getpid(), pid = fork();
    CHECK(pid >= 0);
    if (pid) return pid;
    char text[24];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    snprintf(text, sizeof text, "%ld", step);
    setenv("SHMB_STEP", text, 1);
    setenv("SHMB_STEP_SIGNAL", stops() ? "19" : "9", 1);
    return 0;
}

/* Waits for a child's end, or with WNOHANG looks, and continues it past its stop. Returns whether
 * it was killed or stopped; otherwise it must have ended well. */
static bool look(pid_t pid, int options) {
    int status;
    bool hit = false;
    while (waitpid(pid, &status, options | WUNTRACED) == pid) {
        if (WIFEXITED(status)) CHECK(WEXITSTATUS(status) == 0);
        else {
            CHECK(WIFSTOPPED(status) || WTERMSIG(status) == SIGKILL);
            hit = true;
            totals->kills++;
        }
        if (!WIFSTOPPED(status)) break;
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
        kill(pid, SIGCONT);
    }
    return hit;
}

/* ---- Questions: numbers, texts and lists; answers: a number, the question, an error ---- */

static bool with_default(int64_t i) { return i / ASKED % 2; }
static bool is_error(int64_t i) { return i % 7 == 5 && !with_default(i); }
static bool is_echo(int64_t i) { return i % 4 == 3; }

static void fill(shmb_runner *r, int64_t i) {
    shmb_set_i64(r, "i", i);
    int64_t n = i % 10 == 9 ? 900 : i % 40;
    float *v = shmb_feature_f32(r, "v", n);
    for (int64_t k = 0; v && k < n; k++) v[k] = (float)(i + k);
    if (i % 3 == 2) shmb_set_strings(r, "names", i % 5, (const char *[]){"a", "", "b", "c"}, NULL);
    lane->entries[i].asked = 1;
}

static void check_values(const shmb_tensor *t, int64_t i) {
    const float *v = t->data;
    for (int64_t k = 0; k < t->size; k++) CHECK(v[k] == (float)(i + k));
}

/* ---- The host ---- */

static struct kept { /* a request that it keeps for a while */
    int64_t key;     /* -1: none */
    const uint8_t *at;
    size_t bytes;
    uint8_t copy[65536];
    int age;
} kept = {.key = -1};

/* It stays as it was, whatever becomes of its runner. */
static void keep(struct bridge *b, int64_t key, const shmb_message *m) {
    if (kept.key >= 0) CHECK(memcmp(kept.at, kept.copy, kept.bytes) == 0);
    if (kept.key >= 0 && ++kept.age > 5) {
        shmb_host_release(b->host, kept.key);
        kept.key = -1;
    }
    if (kept.key >= 0 || key & SHMB_KEY_COPY) return;
    kept.key = key, kept.at = m->body, kept.bytes = m->body_bytes, kept.age = 0;
    memcpy(kept.copy, m->body, m->body_bytes);
}

static void receive(struct bridge *b, int64_t key) {
    const shmb_message *m = shmb_host_message(b->host, key);
    CHECK(m && m->count >= 2 && m->tensors[0].dtype == SHMB_INT64);
    int64_t i = *(const int64_t *)m->tensors[0].data;
    CHECK(i >= 0 && i < LIMIT && lane->entries[i].asked);
    check_values(&m->tensors[1], i);
    keep(b, key, m);
    lane->entries[i].received++;
    lane->entries[i].replied++;
    bool stays = kept.key == key;
    if (is_error(i)) shmb_host_reply_error(b->host, key, stays, SHMB_MODEL, "it fails", 8);
    else if (is_echo(i)) bridge_echo(b, key, stays);
    else reply_i64(b->host, key, stays, i + 1);
}

/* Gives a new bridge a name, in place of a dead host's bridge if it has that name. */
static void take_over(struct bridge *b, const char *new_name) {
    char path[NAME_ROOM], from[NAME_ROOM];
    shmb_segment_path(new_name, NULL, path);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd < 0 || shmb_peer_look(fd, HOST_BYTE) == PEER_DEAD);
    if (fd >= 0) close(fd);
    bridge_clean(new_name);
    shmb_segment_path(b->name, NULL, from);
    CHECK(rename(from, path) == 0);
    snprintf(b->name, sizeof b->name, "%s", new_name);
}

/* Returns the host's process once it serves; 0: it died before. */
static pid_t host(long step) {
    int ends[2];
    char byte = 0;
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    lane->stop = false;
    pid_t pid = last_host = start(step);
    if (pid == 0) {
        struct bridge b;
        shmb_plan plan = small_plan;
        plan.slots = 4;
        bridge_open(&b, "ledger", plan, (shmb_wait)(rand_r(&seed) % 4));
        take_over(&b, name);
        CHECK(write(ends[1], &byte, 1) == 1 && close(ends[0]) == 0 && close(ends[1]) == 0);
        while (!lane->stop) {
            int64_t key = shmb_host_receive(b.host, 5000000);
            if (key >= 0) receive(&b, key);
            else CHECK(key == -SHMB_TIMEOUT || key == -SHMB_INTERRUPTED);
        }
        bridge_close(&b);
        _exit(0);
    }
    close(ends[1]);
    struct pollfd serves = {.fd = ends[0], .events = POLLIN};
    while (poll(&serves, 1, stops() ? 10 : -1) == 0) look(pid, WNOHANG);
    bool served = read(ends[0], &byte, 1) == 1;
    close(ends[0]);
    if (!served) CHECK(look(pid, 0) && !stops());
    return served ? pid : 0;
}

/* ---- The runner ---- */

/* What came of a question: advice of one number or an echo, or the default. */
static void note(shmb_runner *r, int64_t i, shmb_status status, int64_t advice) {
    shmb_tensor t;
    if (!status && is_echo(i)) {
        bool echo = shmb_advice(r, "i", &t) == SHMB_OK;
        CHECK(echo || shmb_advice(r, "advice", &t) == SHMB_OK);
        advice = *(const int64_t *)t.data + echo;
        CHECK(!echo || shmb_advice(r, "v", &t) == SHMB_OK);
        if (echo) check_values(&t, i);
    }
    bool answered = is_error(i) ? status == SHMB_MODEL : !status && advice == i + 1;
    CHECK(answered || status || (with_default(i) && advice == -7));
    CHECK(!lane->entries[i].outcome);
    lane->entries[i].outcome = answered ? ANSWERED : status ? ERROR : DEFAULT;
    if (status && !answered && !lane->failed_ns) lane->failed_ns = shmb_clock_ns();
}

static void ask(shmb_runner *r, int64_t from) {
    int64_t advice = 0;
    shmb_ticket tickets[IN_FLIGHT];
    for (int64_t i = from; i < from + QUESTIONS; i++) {
        fill(r, i);
        shmb_status status = is_echo(i) ? shmb_evaluate(r) : shmb_evaluate_i64(r, &advice);
        note(r, i, status, advice);
    }
    from += QUESTIONS;
    for (int64_t i = 0; i < IN_FLIGHT; i++) {
        fill(r, from + i);
        tickets[i] = shmb_send(r, is_echo(from + i) ? SHMB_ANY : SHMB_INT64);
    }
    for (int64_t k = 0; k < IN_FLIGHT; k++) { /* in another order */
        int64_t i = 3 * k % IN_FLIGHT;
        shmb_status status = is_echo(from + i) ? shmb_receive(r, tickets[i])
                                               : shmb_receive_i64(r, tickets[i], &advice);
        note(r, from + i, status, advice);
    }
}

static pid_t runner(long step, int64_t from, int count) {
    lane->failed_ns = 0;
    pid_t pid = start(step);
    if (pid) return pid;
    shmb_runner *r;
    char url[128];
    bool retries = strcmp(victim, "retrying") == 0 || (*victim == 'r' && from / ASKED % 4 == 2);
    shmb_options options = {.size = sizeof options,
                            .log = shmb_say_nothing,
                            .wait = (shmb_wait)(rand_r(&seed) % 4),
                            .default_advice = with_default(from) ? "-7" : NULL};
    snprintf(url, sizeof url, "shm://%s?connect_timeout=%s", name,
             retries                       ? "10&retries=100000&backoff=1ms&deadline=60"
             : strcmp(victim, "host") == 0 ? "0.2"
                                           : "5");
    if (!shmb_open(url, &options, &r))
        for (int i = 0; i < count; i++) ask(r, from + i * 2 * ASKED);
    shmb_close(r);
    _exit(0);
}

/* ---- A lane ---- */

/* What the last host left, which is dead, as `shmbridge gc` does: its bridge, or one without a name
 * yet. */
static void clean(void) {
    struct bridge b = {.plan = small_plan, .name = "none"};
    glob_t found;
    char pattern[128];
    bridge_clean(name);
    snprintf(pattern, sizeof pattern, "/dev/shm/shmb.ledger-%d~*", (int)last_host);
    if (glob(pattern, 0, NULL, &found)) return;
    snprintf(b.session, sizeof b.session, "%s", strchr(found.gl_pathv[0], '~') + 1);
    bridge_clean(b.name);
    CHECK(unlink(found.gl_pathv[0]) == 0);
    globfree(&found);
}

/* Counts a runner's entries and empties them. open: how many questions may have no outcome, since
 * it was killed; hosts: how many may have received one question. */
static void settle(int64_t from, int open, int hosts) {
    for (int64_t i = from; i < from + ASKED; i++) {
        struct entry *e = &lane->entries[i];
        bool well = e->received <= hosts * e->asked && (e->outcome != ANSWERED || e->replied) &&
                    (e->outcome || !e->asked || open--);
        if (!well)
            fprintf(stderr, "question %" PRId64 ": asked %d, received %d, outcome %d\n", i,
                    e->asked, e->received, e->outcome);
        CHECK(well);
        totals->asked += e->asked;
        totals->answered += e->outcome == ANSWERED;
        totals->defaults += e->outcome == DEFAULT;
        totals->errors += e->outcome == ERROR;
        totals->open += e->asked && !e->outcome;
        totals->repeated += e->received > 1 ? e->received - 1 : 0;
        *e = (struct entry){0};
    }
}

static bool all_answered(int64_t from) {
    for (int64_t i = from; i < from + ASKED; i++)
        if (lane->entries[i].outcome != ANSWERED) return false;
    return true;
}

static void detected(int64_t ns) {
    long at = totals->latencies++;
    if (at < LATENCIES) totals->latency_us[at] = (int32_t)((ns < 0 ? 0 : ns) / 1000);
}

static void kill_at_random(pid_t pid) {
    if (*how != 'r') return;
    struct timespec pause = {.tv_nsec = rand_r(&seed) % LONGEST_NS};
    nanosleep(&pause, NULL);
    kill(pid, SIGKILL);
}

/* The store before which the next one is killed: behind the last one's, while that is reached. The
 * lanes share them. */
static long next(long step, bool hit) {
    if (hit && *how != 'r' && step > totals->steps) totals->steps = step;
    return *how == 'r' ? 0 : hit ? step + lanes : first_step;
}

/* Each host is asked by one runner, which outlives it. */
static void kill_hosts(void) {
    long step = first_step;
    for (int i = 0; !enough(); i++) {
        pid_t h = host(step);
        if (h) {
            int64_t from = i % 2 * ASKED;
            pid_t r = runner(0, from, 1);
            kill_at_random(h);
            int status;
            bool hit = false;
            siginfo_t first = {0};
            while (waitid(P_ALL, 0, &first, WEXITED | WSTOPPED | WNOWAIT) == 0 &&
                   first.si_pid == h && first.si_code == CLD_STOPPED)
                hit = look(h, WNOHANG);
            int64_t died_ns = shmb_clock_ns();
            CHECK(waitpid(r, &status, 0) == r && WIFEXITED(status) && WEXITSTATUS(status) == 0);
            if (first.si_pid == h && lane->failed_ns) detected(lane->failed_ns - died_ns);
            lane->stop = true;
            step = next(step, look(h, 0) || hit);
            CHECK(!stops() || !lane->failed_ns);
            settle(from, 0, 1);
        } else step = next(step, true);
        clean();
    }
}

/* A host of several runners, of which each dies; after them comes one that lives. */
static void kill_runners(void) {
    long step = first_step;
    while (!enough()) {
        pid_t h = host(0);
        for (int i = 0; i < VICTIMS; i++) {
            bool spared = i % 16 == 15;
            pid_t r = runner(spared ? 0 : step, i * ASKED, 1);
            if (!spared) kill_at_random(r);
            bool hit = look(r, 0);
            if (!spared) step = next(step, hit);
            if (spared || stops()) CHECK(all_answered(i * ASKED));
        }
        lane->stop = true;
        CHECK(!look(h, 0));
        for (int i = 0; i < VICTIMS; i++) settle(i * ASKED, IN_FLIGHT, 1);
        clean();
    }
}

/* Starts hosts until one serves, and kills that at random; returns how many. The stores come in any
 * order: at each of the first ones, the pauses between retries would grow. */
static int restart(pid_t *h) {
    int hosts = 0;
    do {
        clean();
        hosts++;
    } while (!(*h = host(*how == 'r' ? 0 : 1 + rand_r(&seed) % 300)));
    kill_at_random(*h);
    return hosts;
}

/* One runner asks while its hosts die; every question is answered at last. */
static void kill_under_retries(void) {
    while (!enough()) {
        pid_t h, ended, r = runner(0, 0, RETRYING);
        int status, hosts = restart(&h);
        while ((ended = waitpid(-1, &status, 0)) != r) {
            CHECK(ended == h && WIFSIGNALED(status));
            totals->kills++;
            hosts += restart(&h);
        }
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        lane->stop = true;
        look(h, 0);
        for (int i = 0; i < 2 * RETRYING; i += 2) { /* those without a default */
            CHECK(all_answered(i * ASKED));
            settle(i * ASKED, 0, hosts);
        }
        clean();
    }
}

static int by_size(const void *a, const void *b) {
    return *(const int32_t *)a < *(const int32_t *)b ? -1
                                                     : *(const int32_t *)a > *(const int32_t *)b;
}

int main(int argc, char **argv) {
    CHECK(argc == 7);
    victim = argv[1], how = argv[2];
    int status;
    lanes = atoi(argv[5]);
    bool well = true;
    totals = shared(sizeof *totals);
    int64_t began = shmb_clock_ns();
    kills = atol(argv[3]);
    until_ns = began + atol(argv[4]) * 1000000000;
    for (int i = 0; i < lanes; i++) {
        seed = (unsigned)(atoi(argv[6]) * 1000 + i);
        if (start(0)) continue;
        first_step = i + 1;
        lane = shared(sizeof *lane);
        snprintf(name, sizeof name, "ledger-lane-%d", (int)getpid());

        (strcmp(victim, "host") == 0     ? kill_hosts
         : strcmp(victim, "runner") == 0 ? kill_runners
                                         : kill_under_retries)();
        _exit(0);
    }
    while (wait(&status) > 0) well &= status == 0;
    long n = totals->latencies < LATENCIES ? totals->latencies : LATENCIES;
    qsort((void *)totals->latency_us, (size_t)n, sizeof *totals->latency_us, by_size);
    printf("{\"kills\": %ld, \"asked\": %ld, \"answered\": %ld, \"default\": %ld, \"error\": %ld, "
           "\"open\": %ld, \"repeated\": %ld, \"stores\": %ld, \"seconds\": %.1f",
           totals->kills, totals->asked, totals->answered, totals->defaults, totals->errors,
           totals->open, totals->repeated, totals->steps, (double)(shmb_clock_ns() - began) / 1e9);
    if (n)
        printf(", \"noticed_ms\": {\"median\": %.1f, \"p99\": %.1f, \"most\": %.1f}",
               totals->latency_us[n / 2] / 1e3, totals->latency_us[n * 99 / 100] / 1e3,
               totals->latency_us[n - 1] / 1e3);
    printf("}\n");
    return well ? 0 : 1;
}
