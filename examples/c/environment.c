/* ../cpp/environment.cpp in C: a toy compiler's phase ordering as an environment, for
 * ../python/trainer.py and its model.
 *
 *     cc -O2 environment.c $(shmbridge config --cflags --libs) -o environment
 *     ./environment shm://passes 800 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shmbridge/environment.h>

enum pass { INLINE, FOLD, REMOVE_DEAD, STOP };
static const char *const names[] = {"inline", "fold", "remove-dead", "stop"};

/* The parts of a program that passes affect, and the passes so far. */
struct program {
    int instructions;
    bool calls, constants, dead, warned;
    char passes[512];
};

static void run(struct program *p, int64_t pass) {
    if (pass == INLINE && p->calls) p->instructions += 4, p->constants = true, p->calls = false;
    if (pass == FOLD && p->constants) p->dead = true, p->constants = false;
    if (pass == REMOVE_DEAD && p->dead) p->instructions -= 8, p->dead = false;
}

/* "state": float32[8], 1 at the number whose bits say whether there are calls, constants and dead
 * instructions. */
static void observe(const struct program *p, shmb_runner *r) {
    float *state = shmb_feature_f32(r, "state", 8);
    for (int i = 0; i < 8; i++) state[i] = 0;
    state[p->calls + 2 * p->constants + 4 * p->dead] = 1;
}

static shmb_status reset(void *context, shmb_episode *e) {
    struct program *p = context;
    *p->passes = 0;
    observe(p, shmb_next_agent(e, NULL));
    return SHMB_OK;
}

static shmb_status step(void *context, shmb_episode *e, const shmb_action *action) {
    struct program *p = context;
    int64_t pass = action->index >= INLINE && action->index < STOP ? action->index : STOP;
    int before = p->instructions;
    run(p, pass);
    strcat(strcat(p->passes, *p->passes ? " " : ""), names[pass]);
    if (pass == STOP) {
        shmb_set_done(e);
        return SHMB_OK;
    }
    shmb_add_reward(e, NULL, before - p->instructions - 0.5); /* a pass takes time */
    observe(p, shmb_next_agent(e, NULL));
    return SHMB_OK;
}

static shmb_status on_error(void *context, shmb_episode *e, shmb_status status, const char *why,
                            shmb_action *action) {
    struct program *p = context;
    (void)e, (void)status;
    if (!p->warned) fprintf(stderr, "warning: the heuristic decides: %s\n", why);
    p->warned = true;
    action->index = p->dead ? REMOVE_DEAD : STOP;
    return SHMB_OK;
}

int main(int argc, char **argv) {
    uint64_t programs = argc > 2 ? strtoull(argv[2], NULL, 10) : 8;
    struct program program = {.instructions = 0};
    shmb_runner *runner;
    /* NULL: $SHMBRIDGE_URL; on failure on_error gets the message */
    shmb_open(argc > 1 ? argv[1] : NULL, NULL, &runner);
    shmb_agent agent = {.size = sizeof agent, .runner = runner}, *agents[] = {&agent};
    if (argc > 3) agent.choice = SHMB_SAMPLE_LOGITS, agent.random = strtoull(argv[3], NULL, 10);
    shmb_environment environment = {.size = sizeof environment,
                                    .context = &program,
                                    .reset = reset,
                                    .step = step,
                                    .on_error = on_error};
    for (uint64_t i = 0; i < programs; i++) {
        const char *why;
        program.instructions = 40;
        program.calls = i & 1, program.constants = i & 2, program.dead = i & 4;
        if (shmb_drive(&environment, agents, 1, 20, &why) != SHMB_OK) {
            fprintf(stderr, "%s\n", why);
            return 1;
        }
        printf("%llu: %s (%d instructions, reward %g)\n", (unsigned long long)i, program.passes,
               program.instructions, agent.reward);
    }
    shmb_close(runner);
    return 0;
}
