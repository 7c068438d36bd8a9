/* A compiler that leaves or dies at any point is forgotten, and the next one gets its own answers,
 * also when it came while the host was busy. */
#include "pipes.h"

static void client_send(const struct client *c, const char *text, size_t bytes) {
    char frame[64];
    uint64_t length = strlen(text);
    memcpy(frame, &length, sizeof length);
    memcpy(frame + sizeof length, text, length);
    CHECK(write(c->to, frame, bytes) == (ssize_t)bytes);
}

static void client_ask(const struct client *c, const char *text) {
    client_send(c, text, 8 + strlen(text));
}

static void client_expect(const struct client *c, const char *text) {
    char frame[64];
    uint64_t length = strlen(text);
    pipes_await(c->from, POLLIN);
    CHECK(read(c->from, frame, sizeof frame) == (ssize_t)(8 + length));
    CHECK(memcmp(frame, &length, 8) == 0 && memcmp(frame + 8, text, length) == 0);
}

static void converse(struct compilers *s, const struct client *c, const char *text,
                     const char *expected) {
    client_ask(c, text);
    compilers_answer(s, compilers_receive(s, PATIENCE_MS));
    client_expect(c, expected);
}

/* The next one comes before the host has looked, or after. */
static struct client replace(struct compilers *s, const struct client *old, bool looks) {
    client_close(old);
    if (looks) CHECK(compilers_receive(s, 30) == -1 && shmb_pipe_server_talking(s->server) == 0);
    return client_open(&s->pipes);
}

static void died_in_its_frame(struct compilers *s, bool looks) {
    for (size_t bytes = 0; bytes < 12; bytes++) {
        struct client c = client_open(&s->pipes);
        client_send(&c, "dead", bytes);
        CHECK(compilers_receive(s, 5) == -1);
        c = replace(s, &c, looks);
        converse(s, &c, "next", "next!");
        client_close(&c);
    }
}

static void died_while_the_model_computed(struct compilers *s, bool looks) {
    struct client c = client_open(&s->pipes);
    client_ask(&c, "dead");
    int64_t key = compilers_receive(s, PATIENCE_MS);
    c = replace(s, &c, looks);
    client_ask(&c, "next");
    compilers_answer(s, key); /* too late */
    compilers_answer(s, compilers_receive(s, PATIENCE_MS));
    client_expect(&c, "next!");
    converse(s, &c, "more", "more!");
    client_close(&c);
}

/* What it asked is not taken for bytes of the one behind it, which said nothing. */
static void died_asking_and_one_said_nothing(struct compilers *s, bool looks) {
    struct client c = client_open(&s->pipes);
    client_ask(&c, "dead");
    int64_t key = compilers_receive(s, PATIENCE_MS);
    client_close(&c);
    CHECK(compilers_receive(s, 30) == -1);
    c = client_open(&s->pipes);
    c = replace(s, &c, looks);
    compilers_answer(s, key); /* too late */
    converse(s, &c, "next", "next!");
    client_close(&c);
}

static void died_before_it_read(struct compilers *s, bool looks) {
    char byte;
    struct client c = client_open(&s->pipes);
    client_ask(&c, "dead");
    compilers_answer(s, compilers_receive(s, PATIENCE_MS));
    CHECK(compilers_receive(s, 5) == -1);
    c = replace(s, &c, looks);
    CHECK(compilers_receive(s, 5) == -1 && read(c.from, &byte, 1) < 0); /* nothing is left of it */
    client_ask(&c, "next");
    compilers_answer(s, compilers_receive(s, PATIENCE_MS));
    client_expect(&c, "next!");
    client_close(&c);
}

static void ended_well(struct compilers *s, bool looks) {
    struct client c = client_open(&s->pipes);
    converse(s, &c, "first", "first!");
    c = replace(s, &c, looks);
    converse(s, &c, "next", "next!");
    c = replace(s, &c, looks);
    c = replace(s, &c, looks); /* it said nothing */
    converse(s, &c, "last", "last!");
    client_close(&c);
}

/* It wrote and died, the next one came and perhaps asked, and only then does the host look: whose
 * bytes are whose cannot be told, so that the second sees the end of its pipe; the one after it is
 * served. */
static void died_unseen(struct compilers *s, bool asks) {
    char byte;
    for (size_t bytes = 1; bytes <= 12; bytes++) {
        struct client c = client_open(&s->pipes);
        CHECK(compilers_receive(s, 5) == -1);
        client_send(&c, "dead", bytes);
        c = replace(s, &c, false);
        if (asks) client_ask(&c, "lost");
        CHECK(compilers_receive(s, 30) == -1);
        pipes_await(c.from, POLLIN | POLLHUP);
        CHECK(read(c.from, &byte, 1) == 0);
        client_close(&c);
        CHECK(compilers_receive(s, 30) == -1);
        c = client_open(&s->pipes);
        converse(s, &c, "next", "next!");
        client_close(&c);
        CHECK(compilers_receive(s, 5) == -1);
    }
}

/* Nor can it where two have left since the host looked, of which only the second wrote unread. */
static void two_died_unseen(struct compilers *s) {
    char byte;
    struct client c = client_open(&s->pipes);
    client_ask(&c, "dead");
    int64_t key = compilers_receive(s, PATIENCE_MS);
    c = replace(s, &c, false);
    client_send(&c, "dead", 10);
    c = replace(s, &c, false);
    client_ask(&c, "lost");
    compilers_answer(s, key); /* too late */
    CHECK(compilers_receive(s, 30) == -1);
    pipes_await(c.from, POLLIN | POLLHUP);
    CHECK(read(c.from, &byte, 1) == 0);
    client_close(&c);
    CHECK(compilers_receive(s, 5) == -1);
}

/* As many runners of ours, each of which waits for the one before. */
static void runners_in_turn(struct compilers *s) {
    for (int i = 0; i < 20; i++) {
        shmb_runner *r = pipes_connect(&s->pipes);
        pipes_start(r, "question");
        if (i % 2) {
            CHECK_STATUS(r, compilers_turn(s, r), SHMB_OK);
            pipes_expect(r, "question!");
            shmb_close(r);
        } else { /* it leaves with an open question, whose answer comes later */
            int64_t key = compilers_receive(s, PATIENCE_MS);
            shmb_close(r);
            if (i % 4) CHECK(compilers_receive(s, 5) == -1);
            compilers_answer(s, key);
        }
        CHECK(compilers_receive(s, 5) == -1);
    }
}

int main(void) {
    struct compilers s;
    compilers_open(&s, "server-next");
    for (int looks = 0; looks < 2; looks++) {
        ended_well(&s, looks);
        CHECK(compilers_receive(&s, 5) == -1);
        died_in_its_frame(&s, looks);
        CHECK(compilers_receive(&s, 5) == -1);
        died_while_the_model_computed(&s, looks);
        CHECK(compilers_receive(&s, 5) == -1);
        died_asking_and_one_said_nothing(&s, looks);
        CHECK(compilers_receive(&s, 5) == -1);
        died_before_it_read(&s, looks);
        CHECK(compilers_receive(&s, 5) == -1);
        died_unseen(&s, looks);
    }
    two_died_unseen(&s);
    runners_in_turn(&s);
    compilers_close(&s);
}
