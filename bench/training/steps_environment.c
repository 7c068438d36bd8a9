/* A pass that does almost nothing: ./steps_environment URL LENGTH. Its observation is float32[300],
 * an episode has LENGTH steps, and it begins the next one until its host has closed. */
#include <stdlib.h>

#include <shmbridge/environment.h>

struct walk {
    int at, length;
};

static void observe(const struct walk *w, shmb_runner *r) {
    float *x = shmb_feature_f32(r, "x", 300);
    for (int i = 0; x && i < 300; i++) x[i] = (float)(w->at + i);
}

static shmb_status reset(void *context, shmb_episode *e) {
    struct walk *w = context;
    w->at = 0;
    observe(w, shmb_next_agent(e, NULL));
    return SHMB_OK;
}

static shmb_status step(void *context, shmb_episode *e, const shmb_action *action) {
    struct walk *w = context;
    shmb_add_reward(e, NULL, (double)action->index);
    if (++w->at == w->length) shmb_set_done(e);
    observe(w, shmb_next_agent(e, NULL));
    return SHMB_OK;
}

int main(int argc, char **argv) {
    shmb_runner *runner;
    if (argc != 3 || shmb_open(argv[1], NULL, &runner)) return 1;
    struct walk walk = {.length = atoi(argv[2])};
    shmb_agent agent = {.size = sizeof agent, .runner = runner}, *agents[] = {&agent};
    shmb_environment environment = {
        .size = sizeof environment, .context = &walk, .reset = reset, .step = step};
    shmb_status status;
    do status = shmb_drive(&environment, agents, 1, 0, NULL);
    while (!status || status == SHMB_MODEL); /* MODEL: given up by a reset */
}
