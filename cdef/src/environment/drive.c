/* Episodes: an environment's callbacks and agents' runners by turns. It calls the public API alone,
 * as a loop of the user's own would, but for where its error's text stays: with the first agent's
 * runner. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "environment/drive.h"
#include "runner/runner.h"

struct trainer {
    double pending_reward; /* the agent's, which no request has reported yet */
    bool announced;        /* one listens; with the first agent that has this runner */
};

struct shmb_episode {
    const shmb_environment *environment;
    shmb_status (*ask)(void *context, shmb_runner *r);
    shmb_agent *const *agents;
    struct trainer *trainers; /* [count] */
    int64_t count, actor, next, steps;
    bool done;
    shmb_status wrong; /* a callback said what cannot be */
    struct error why;  /* the last one */
    struct error said; /* why a callback is about to fail, in its own words */
};

static const char *name_of(const shmb_agent *agent) { return agent->name ? agent->name : ""; }

static struct trainer *trainer_of(const shmb_episode *e, const shmb_agent *agent) {
    int64_t i = 0;
    while (e->agents[i]->runner != agent->runner) i++;
    return &e->trainers[i];
}

static int64_t drive_find(const shmb_episode *e, const char *name) {
    int64_t i = 0;
    while (i < e->count && strcmp(name_of(e->agents[i]), name) != 0) i++;
    return i;
}

static int64_t find_named(shmb_episode *e, const char *name, int64_t otherwise) {
    int64_t i = name ? drive_find(e, name) : otherwise;
    if (i < e->count) return i;
    if (!e->wrong)
        e->wrong = shmb_fail(
            &e->why, SHMB_INVALID,
            "the environment names an agent \"%.100s\", which the driver does not have", name);
    return otherwise;
}

/* ---- For the callbacks ---- */

void shmb_set_done(shmb_episode *e) { e->done = true; }

void shmb_set_error(shmb_episode *e, const char *text) {
    *e->said.message = 0;
    if (text && *text) shmb_fail(&e->said, SHMB_MODEL, "%s", text);
}

shmb_runner *shmb_next_agent(shmb_episode *e, const char *name) {
    int64_t next = find_named(e, name, e->next);
    shmb_runner *before = e->agents[e->next]->runner, *r = e->agents[next]->runner;
    if (before != r) shmb_discard(before);
    e->next = next;
    return r;
}

void shmb_add_reward(shmb_episode *e, const char *agent, double reward) {
    int64_t i = find_named(e, agent, e->actor);
    if (reward != reward && !e->wrong)
        e->wrong =
            shmb_fail(&e->why, SHMB_INVALID, "expected a reward that is a number, found a NaN");
    e->agents[i]->reward += reward;
    e->trainers[i].pending_reward += reward;
}

/* ---- Ask ---- */

/* The sum of its agents' rewards, and where they are several each one's own. */
static void add_rewards(const shmb_episode *e, shmb_runner *r) {
    int64_t sharing = 0;
    double sum = 0;
    for (int64_t i = 0; i < e->count; i++) {
        if (e->agents[i]->runner != r) continue;
        sharing++;
        sum += e->trainers[i].pending_reward;
    }
    shmb_set(r, "reward", SHMB_FLOAT64, 0, NULL, &sum);
    for (int64_t i = 0; sharing > 1 && i < e->count; i++) {
        char name[256];
        if (e->agents[i]->runner != r) continue;
        snprintf(name, sizeof name, "reward.%s", name_of(e->agents[i]));
        shmb_set(r, name, SHMB_FLOAT64, 0, NULL, &e->trainers[i].pending_reward);
    }
}

static void add_report(const shmb_episode *e, const shmb_agent *agent, bool done, bool truncated) {
    const struct trainer *trainer = trainer_of(e, agent);
    shmb_runner *r = agent->runner;
    if (*name_of(agent)) shmb_set_string(r, "agent", agent->name, -1);
    if (!trainer->announced) return;
    add_rewards(e, r);
    shmb_set(r, "done", SHMB_BOOL, 0, NULL, &done);
    shmb_set(r, "truncated", SHMB_BOOL, 0, NULL, &truncated);
    shmb_set_i64(r, "step", e->steps);
}

static shmb_status drive_read_advice(shmb_episode *e, const shmb_agent *agent,
                                     struct trainer *trainer, shmb_action *action) {
    shmb_runner *r = agent->runner;
    int64_t count = shmb_advice_count(r);
    shmb_tensor t;
    char found[160] = "";
    for (int64_t i = 0; i < count && shmb_advice_at(r, i, &t) == SHMB_OK; i++) {
        shmb_list_name(found, sizeof found, t.name);
        if (strcmp(t.name, "learner") == 0) trainer->announced = true;
        if (count == 1 || (agent->advice && strcmp(t.name, agent->advice) == 0)) action->advice = t;
    }
    if (action->advice.name || (!agent->advice && agent->choice == SHMB_RAW)) return SHMB_OK;
    return shmb_fail(
        &e->why, SHMB_MISMATCH,
        "agent \"%.60s\": expected advice %.60s, found %s: set the agent's advice to one of them",
        name_of(agent), agent->advice ? agent->advice : "of one field", found);
}

static shmb_status drive_ask(shmb_episode *e, shmb_action *action) {
    shmb_agent *agent = e->agents[e->next];
    struct trainer *trainer = trainer_of(e, agent);
    shmb_runner *r = agent->runner;
    const char *why = NULL;
    e->actor = e->next;
    *e->said.message = 0;
    *action = (shmb_action){.agent = agent->name, .runner = r};
    add_report(e, agent, false, false);
    shmb_status status = e->ask(e->environment->context, r);
    if (status) return shmb_fail(&e->why, status, "%s", shmb_error_message(r));
    for (int64_t i = 0; i < e->count; i++)
        if (e->agents[i]->runner == r) e->trainers[i].pending_reward = 0;
    if ((status = drive_read_advice(e, agent, trainer, action))) return status;
    if (agent->choice == SHMB_RAW) return SHMB_OK;
    status = shmb_choose(&action->advice, agent->choice, &agent->random, &action->index, &why);
    return status ? shmb_fail(&e->why, status, "agent \"%.60s\", \"%.60s\": %s", name_of(agent),
                              action->advice.name, why)
                  : SHMB_OK;
}

/* ---- The episode ---- */

/* The last word to a trainer. Where it cannot be sent, first the observation is left out, then why
 * the episode failed. */
static void drive_report(const shmb_episode *e, const shmb_agent *agent, bool done, bool failed) {
    const shmb_agent *actor = e->agents[e->actor];
    for (int attempt = failed; attempt < 3; attempt++) {
        if (attempt) shmb_discard(agent->runner);
        if (failed && attempt == 1) shmb_set_string(agent->runner, "error", e->why.message, -1);
        add_report(e, actor->runner == agent->runner ? actor : agent, done, !done);
        shmb_status status = e->ask(e->environment->context, agent->runner);
        if (status != SHMB_INVALID && status != SHMB_TOO_LARGE && status != SHMB_MISMATCH) return;
    }
}

/* Why these can be no episode; NULL when they can. */
static const char *check(const shmb_environment *environment, shmb_agent *const *agents,
                         int64_t count) {
    if (!environment || environment->size != sizeof *environment || !environment->reset ||
        !environment->step)
        return "expected an environment with its size, reset and step";
    if (count < 1 || !agents) return "expected one agent or more, found none";
    for (shmb_episode e = {.agents = agents}; e.count < count; e.count++) {
        const shmb_agent *a = agents[e.count];
        if (!a || a->size != sizeof *a) return "an agent's size is not sizeof(shmb_agent)";
        if (!a->runner) return "an agent has no runner";
        if ((unsigned)a->choice > SHMB_RAW) return "an agent's choice is no shmb_choice";
        if (drive_find(&e, name_of(a)) < e.count) return "two agents have the same name, or none";
    }
    return NULL;
}

/* What a callback came to. */
static shmb_status ended(shmb_episode *e, shmb_status status, const char *which) {
    if (e->wrong) return e->wrong;
    return status ? shmb_fail(&e->why, status, "the environment's %s failed: %s", which,
                              *e->said.message ? e->said.message : shmb_strerror(status))
                  : SHMB_OK;
}

/* Nobody advised: does the environment know what to do? */
static shmb_status without_advice(shmb_episode *e, shmb_status status, shmb_action *action) {
    const shmb_environment *environment = e->environment;
    action->advice = (shmb_tensor){0};
    action->index = 0;
    if (!environment->on_error) return status;
    shmb_status now =
        environment->on_error(environment->context, e, status, e->why.message, action);
    bool same = now == status && !e->wrong && !*e->said.message;
    return same ? status : ended(e, now, "on_error");
}

static shmb_status drive_run(shmb_episode *e, int64_t max_steps, bool *interrupted) {
    const shmb_environment *environment = e->environment;
    shmb_status status = ended(e, environment->reset(environment->context, e), "reset");
    while (!status && !e->done && (max_steps <= 0 || e->steps < max_steps)) {
        shmb_action action;
        status = drive_ask(e, &action);
        *interrupted = status == SHMB_INTERRUPTED;
        if (status) status = without_advice(e, status, &action);
        if (status || e->done) break;
        e->steps++;
        e->agents[e->actor]->steps++;
        status = ended(e, environment->step(environment->context, e, &action), "step");
    }
    return status;
}

/* Tells the trainers that listen how it ended, and forgets what was filled. */
static void drive_leave(const shmb_episode *e, shmb_status status, bool interrupted) {
    for (int64_t i = 0; i < e->count; i++) {
        const shmb_agent *a = e->agents[i];
        if (trainer_of(e, a) != &e->trainers[i]) continue;
        if (e->trainers[i].announced && !(status && interrupted))
            drive_report(e, a, e->done && !status, status != SHMB_OK);
        else shmb_discard(a->runner);
    }
}

static void drive_begin(shmb_agent *a) {
    a->runner->reports = false; /* the caller gets every failure */
    a->steps = 0;
    a->reward = 0;
    shmb_discard(a->runner);
}

shmb_status shmb_drive_by(const shmb_environment *environment, shmb_agent *const *agents,
                          int64_t count, int64_t max_steps,
                          shmb_status (*ask)(void *context, shmb_runner *r), const char **why) {
    shmb_episode e = {.environment = environment, .ask = ask, .agents = agents, .count = count};
    bool interrupted = false;
    const char *wrong = check(environment, agents, count);
    if (why) *why = wrong ? wrong : "no memory for an episode";
    if (wrong) return SHMB_INVALID;
    if (!(e.trainers = calloc((size_t)count, sizeof *e.trainers))) return SHMB_NO_MEMORY;
    for (int64_t i = 0; i < count; i++) drive_begin(agents[i]);
    shmb_status status = drive_run(&e, max_steps, &interrupted);
    drive_leave(&e, status, interrupted);
    free(e.trainers);
    if (status) shmb_fail(&agents[0]->runner->error, status, "%s", e.why.message);
    if (why) *why = status ? shmb_error_message(agents[0]->runner) : "";
    return status;
}

static shmb_status ask_plainly(void *context, shmb_runner *r) {
    (void)context;
    return shmb_evaluate(r);
}

shmb_status shmb_drive(const shmb_environment *environment, shmb_agent *const *agents,
                       int64_t count, int64_t max_steps, const char **why) {
    return shmb_drive_by(environment, agents, count, max_steps, ask_plainly, why);
}
