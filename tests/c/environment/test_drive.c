/* Episodes through C callbacks: who is asked with what, who hears of rewards and the end, and every
 * way to end. */
#include <stdarg.h>

#include "kinds.h"
#include "shmbridge/environment.h"

/* ---- A runner that answers as its URL says, and keeps what it was asked ---- */

static char log_text[4096];
static int questions;

static void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void note(const char *format, ...) {
    va_list args;
    va_start(args, format);
    size_t used = strlen(log_text);
    vsnprintf(log_text + used, sizeof log_text - used, format, args);
    va_end(args);
}

static bool logged(const char *expected) {
    if (strcmp(log_text, expected) == 0) return *log_text = 0, true;
    fprintf(stderr, "expected: %s\nfound:    %s\n", expected, log_text);
    return false;
}

static ANSWERS(evaluate) {
    const char *what = state;
    questions++;
    for (const shmb_tensor *f = features; f < features + count; f++) {
        if (f->kind == SHMB_STRING) note("%s=%.*s ", f->name, (int)f->size, (const char *)f->data);
        else if (f->dtype == SHMB_FLOAT64) note("%s=%g ", f->name, *(const double *)f->data);
        else if (f->dtype == SHMB_INT64)
            note("%s=%lld ", f->name, (long long)*(const int64_t *)f->data);
        else if (f->dtype == SHMB_BOOL && *(const uint8_t *)f->data) note("%s ", f->name);
    }
    note("| ");
    if (strcmp(what, "fails") == 0) return shmb_sink_fail(advice, SHMB_MODEL, "no idea");
    if (strcmp(what, "gone") == 0) return shmb_sink_fail(advice, SHMB_HOST_GONE, "it has died");
    if (strcmp(what, "learner") == 0) {
        *(int64_t *)shmb_sink_field(advice, "learner", SHMB_INT64, SHMB_TENSOR, 0, NULL, NULL) = 1;
        return SHMB_OK;
    }
    float *logits =
        shmb_sink_field(advice, "logits", SHMB_FLOAT32, SHMB_TENSOR, 1, (int64_t[]){4}, NULL);
    for (int i = 0; i < 4; i++) logits[i] = (float)(i == 2);
    if (strcmp(what, "two") == 0)
        *(float *)shmb_sink_field(advice, "value", SHMB_FLOAT32, SHMB_TENSOR, 0, NULL, NULL) = 0.5f;
    return SHMB_OK;
}

/* ---- An environment that counts to `length` ---- */

struct count {
    int64_t at, length;
    const char *const *turns; /* agents' names, or NULL */
    shmb_status fails;        /* of step 2 */
    const char *why;          /* what that says */
    bool fill_bad, done_at_reset, goes_on;
    int64_t last;
    const float *raw;
};

static void observe(struct count *c, shmb_episode *e) {
    shmb_runner *r = shmb_next_agent(e, c->turns ? c->turns[c->at] : NULL);
    shmb_set_i64(r, "at", c->at);
    if (c->fill_bad) shmb_set_i64(r, "at", c->at);
}

static shmb_status reset(void *context, shmb_episode *e) {
    struct count *c = context;
    c->at = 0;
    if (c->done_at_reset) shmb_set_done(e);
    observe(c, e);
    return SHMB_OK;
}

static shmb_status step(void *context, shmb_episode *e, const shmb_action *action) {
    struct count *c = context;
    c->last = action->index;
    c->raw = action->advice.data;
    c->at++;
    shmb_add_reward(e, NULL, 0.5);
    shmb_add_reward(e, NULL, 1);
    if (c->fails && c->at == 2) return shmb_set_error(e, c->why), c->fails;
    if (c->at == c->length) return shmb_set_done(e), SHMB_OK;
    observe(c, e);
    return SHMB_OK;
}

static shmb_status fail_reset(void *context, shmb_episode *e) { return SHMB_BUSY; }

/* An episode within another, which fails in its own way. */
static shmb_status nested(void *context, shmb_episode *e, shmb_status status, const char *why,
                          shmb_action *action) {
    shmb_environment inner = {.size = sizeof inner, .reset = fail_reset, .step = step};
    shmb_runner *r = runner_open("policy://");
    shmb_agent agent = {.size = sizeof agent, .runner = r};
    const char *its;
    CHECK(shmb_drive(&inner, (shmb_agent *[]){&agent}, 1, 0, &its) == SHMB_BUSY &&
          strstr(its, "reset failed") && strcmp(why, "no idea") == 0);
    shmb_close(r);
    return status;
}

static shmb_status on_error(void *context, shmb_episode *e, shmb_status status, const char *why,
                            shmb_action *action) {
    struct count *c = context;
    CHECK(status && *why && !action->advice.data);
    if (!c->goes_on) return shmb_set_done(e), status;
    action->index = 9;
    return SHMB_OK;
}

int main(void) {
    kind_register("policy", evaluate);
    shmb_runner *model = runner_open("policy://model"), *learner = runner_open("policy://learner"),
                *second = runner_open("policy://learner"), *fails = runner_open("policy://fails"),
                *gone = runner_open("policy://gone"), *two = runner_open("policy://two");
    struct count c = {.length = 3};
    shmb_environment environment = {
        .size = sizeof environment, .context = &c, .reset = reset, .step = step};
    shmb_agent a = {.size = sizeof a, .runner = model},
               b = {.size = sizeof b, .name = "b", .runner = model}, d = b;
    shmb_agent *one[] = {&a}, *both[] = {&a, &b};
    const char *why;

    /* a model is asked with the observation, and not told of the end */
    CHECK(shmb_drive(&environment, one, 1, 0, &why) == SHMB_OK && !*why && a.steps == 3 &&
          a.reward == 4.5 && c.last == 2);
    CHECK(logged("at=0 | at=1 | at=2 | "));
    /* bounded; what was filled is forgotten */
    CHECK(shmb_drive(&environment, one, 1, 2, NULL) == SHMB_OK && a.steps == 2);
    CHECK(shmb_drive(&environment, one, 1, 1, NULL) == SHMB_OK && logged("at=0 | at=1 | at=0 | "));

    /* a learner hears of rewards, and of the end */
    a.runner = learner;
    CHECK(shmb_drive(&environment, one, 1, 0, NULL) == SHMB_OK && c.last == 1);
    CHECK(logged(
        "at=0 | at=1 reward=1.5 step=1 | at=2 reward=1.5 step=2 | reward=1.5 done step=3 | "));
    CHECK(shmb_drive(&environment, one, 1, 1, NULL) == SHMB_OK &&
          logged("at=0 | at=1 reward=1.5 truncated step=1 | "));
    c.fails = SHMB_NO_MEMORY;
    CHECK(shmb_drive(&environment, one, 1, 0, &why) == SHMB_NO_MEMORY &&
          strstr(why, "step failed: out of memory"));
    CHECK(
        logged("at=0 | at=1 reward=1.5 step=1 | error=the environment's step failed: out of memory "
               "reward=1.5 truncated step=2 | "));
    c.why = "no such loop";
    CHECK(shmb_drive(&environment, one, 1, 0, &why) == SHMB_NO_MEMORY &&
          strcmp(why, "the environment's step failed: no such loop") == 0);
    CHECK(
        logged("at=0 | at=1 reward=1.5 step=1 | error=the environment's step failed: no such loop "
               "reward=1.5 truncated step=2 | "));
    c.fails = SHMB_OK;
    c.done_at_reset = true;
    CHECK(shmb_drive(&environment, one, 1, 0, NULL) == SHMB_OK && a.steps == 0 && logged(""));
    c.done_at_reset = false;

    /* agents by turns: one runner, and one each */
    c.turns = (const char *const[]){"b", "", "b"};
    b.runner = learner;
    CHECK(shmb_drive(&environment, both, 2, 0, NULL) == SHMB_OK && a.steps == 1 && b.steps == 2 &&
          a.reward == 1.5 && b.reward == 3);
    CHECK(logged("at=0 agent=b | at=1 reward=1.5 reward.=0 reward.b=1.5 step=1 | "
                 "at=2 agent=b reward=1.5 reward.=1.5 reward.b=0 step=2 | "
                 "agent=b reward=1.5 reward.=0 reward.b=1.5 done step=3 | "));
    b.runner = second;
    CHECK(shmb_drive(&environment, both, 2, 0, NULL) == SHMB_OK);
    CHECK(logged("at=0 agent=b | at=1 | at=2 agent=b reward=1.5 step=2 | reward=1.5 done step=3 | "
                 "agent=b reward=1.5 done step=3 | "));
    c.turns = (const char *const[]){"b", "nobody", "b"};
    CHECK(shmb_drive(&environment, both, 2, 0, &why) == SHMB_INVALID && strstr(why, "\"nobody\""));
    c.turns = NULL;
    *log_text = 0;

    /* raw advice, and one field of several */
    a = (shmb_agent){.size = sizeof a, .runner = two, .choice = SHMB_RAW};
    CHECK(shmb_drive(&environment, one, 1, 0, NULL) == SHMB_OK && c.last == 0 && !c.raw);
    a.advice = "logits";
    CHECK(shmb_drive(&environment, one, 1, 0, NULL) == SHMB_OK && c.last == 0 && c.raw[2] == 1);
    a.choice = SHMB_ARGMAX;
    CHECK(shmb_drive(&environment, one, 1, 0, NULL) == SHMB_OK && c.last == 2);
    a.advice = NULL;
    CHECK(shmb_drive(&environment, one, 1, 0, &why) == SHMB_MISMATCH &&
          strstr(why, "expected advice of one field, found "));
    a.advice = "q";
    CHECK(shmb_drive(&environment, one, 1, 0, &why) == SHMB_MISMATCH &&
          strstr(why, "expected advice q, found "));
    a.advice = "value";
    CHECK(shmb_drive(&environment, one, 1, 0, &why) == SHMB_MISMATCH &&
          strstr(why, "a single float"));
    *log_text = 0;

    /* errors end the episode, unless the environment knows what to do */
    a = (shmb_agent){.size = sizeof a, .runner = fails};
    CHECK(shmb_drive(&environment, one, 1, 0, &why) == SHMB_MODEL && strcmp(why, "no idea") == 0 &&
          a.steps == 0);
    environment.on_error = on_error;
    CHECK(shmb_drive(&environment, one, 1, 0, &why) == SHMB_MODEL && strcmp(why, "no idea") == 0);
    c.goes_on = true;
    CHECK(shmb_drive(&environment, one, 1, 0, &why) == SHMB_OK && !*why && a.steps == 3 &&
          c.last == 9);
    a.runner = gone;
    questions = 0;
    CHECK(shmb_drive(&environment, one, 1, 0, NULL) == SHMB_OK && a.steps == 3 && questions == 1);
    a.runner = model;
    c.fill_bad = true;
    CHECK(shmb_drive(&environment, one, 1, 0, NULL) == SHMB_OK && c.last == 9);
    environment.on_error = NULL;
    CHECK(shmb_drive(&environment, one, 1, 0, &why) == SHMB_INVALID && strstr(why, "at"));
    c.fill_bad = false;
    shmb_interrupt(model);
    CHECK(shmb_drive(&environment, one, 1, 0, NULL) == SHMB_INTERRUPTED);
    CHECK(shmb_drive(&environment, one, 1, 0, NULL) == SHMB_OK);

    /* the text outlives the agents; an episode within another leaves the other's text alone */
    {
        shmb_agent short_lived = {.size = sizeof short_lived, .runner = fails};
        CHECK(shmb_drive(&environment, (shmb_agent *[]){&short_lived}, 1, 0, &why) == SHMB_MODEL);
        memset(&short_lived, 0, sizeof short_lived);
    }
    CHECK(strcmp(why, "no idea") == 0);
    a.runner = fails;
    environment.on_error = nested;
    CHECK(shmb_drive(&environment, one, 1, 0, &why) == SHMB_MODEL && strcmp(why, "no idea") == 0);
    a.runner = model;
    environment.on_error = NULL;

    /* what makes no sense */
    CHECK(shmb_drive(NULL, one, 1, 0, NULL) == SHMB_INVALID &&
          shmb_drive(&environment, one, 0, 0, NULL) == SHMB_INVALID);
    CHECK(shmb_drive(&(shmb_environment){.size = sizeof environment}, one, 1, 0, NULL) ==
          SHMB_INVALID);
    CHECK(shmb_drive(&environment, (shmb_agent *[]){NULL}, 1, 0, NULL) == SHMB_INVALID);
    CHECK(shmb_drive(&environment, (shmb_agent *[]){&b, &d}, 2, 0, &why) == SHMB_INVALID &&
          strstr(why, "the same name"));
    d.runner = NULL;
    CHECK(shmb_drive(&environment, (shmb_agent *[]){&d}, 1, 0, &why) == SHMB_INVALID &&
          strstr(why, "no runner"));
    a.choice = (shmb_choice)4;
    CHECK(shmb_drive(&environment, one, 1, 0, &why) == SHMB_INVALID && strstr(why, "choice"));
    a.size = 8;
    CHECK(shmb_drive(&environment, one, 1, 0, NULL) == SHMB_INVALID);
    shmb_runner *all[] = {model, learner, second, fails, gone, two};
    for (int i = 0; i < 6; i++) shmb_close(all[i]);
}
