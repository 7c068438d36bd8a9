/**
 * shmbridge: a pass as an environment of reinforcement learning.
 *
 * You write the pass once. Its agents ask their runners, and the URL selects a trainer, which
 * explores, or a trained model. shmbridge_rl.hpp has the same as C++ classes.
 *
 *     static shmb_status step(void *pass, shmb_episode *e, const shmb_action *action) {
 *         shmb_add_reward(e, NULL, apply(pass, action->index));
 *         if (at_the_end(pass)) shmb_set_done(e);
 *         else observe(pass, shmb_next_agent(e, NULL)); // fills it with shmb_feature and shmb_set
 *         return SHMB_OK;
 *     }
 *     ...
 *     shmb_environment environment = {
 *         .size = sizeof environment, .context = pass, .reset = reset, .step = step};
 *     shmb_agent agent = {.size = sizeof agent, .runner = r}, *agents[] = {&agent};
 *     if (shmb_drive(&environment, agents, 1, 1000, &why) != SHMB_OK) warn(why);
 *
 * shmb_drive adds rewards and the end of an episode to the requests if a trainer answers them:
 * "The wire format" on the page "Environments". Any other model receives only the observations.
 *
 * Ownership: the caller owns the environment, the agents and their runners, and keeps them while
 * shmb_drive runs. Threads: shmb_drive runs the whole episode in its caller's thread.
 */
#ifndef SHMBRIDGE_ENVIRONMENT_H
#define SHMBRIDGE_ENVIRONMENT_H

#include "shmbridge.h"

#ifdef __cplusplus
extern "C" {
#endif

/** ---- Choices -------------------------------------------------------------------------------- */

/** How an agent chooses an action from advice. */
typedef enum shmb_choice {
    /** The index of the greatest element; the first of equal ones. Indices are row-major. */
    SHMB_ARGMAX = 0,
    /** A random index i, with probability proportional to exp(element i); -infinity: never. */
    SHMB_SAMPLE_LOGITS = 1,
    /** The same, proportional to element i; the elements need not add up to 1. */
    SHMB_SAMPLE_PROBABILITIES = 2,
    /** No index: the environment reads the advice, and chooses itself. */
    SHMB_RAW = 3
} shmb_choice;

/**
 * Chooses from a tensor of numbers, in the same way on every machine. A single integer or bool is
 * taken as the action, as a trainer sends it. *random: the state of shmb_random; a sample uses one
 * number. *why (may be NULL) gets the static text of an error: MISMATCH (an empty tensor, no
 * numbers, or a single float of rank 0), MODEL (a NaN; when sampling also a negative probability,
 * or no element that can be chosen), INVALID (no such choice, or SHMB_RAW).
 */
shmb_status shmb_choose(const shmb_tensor *advice, shmb_choice how, uint64_t *random,
                        int64_t *action, const char **why);
/**
 * The next random number in [0, 1), a multiple of 2^-53, by SplitMix64 with the state *random. Any
 * number is a valid seed.
 */
double shmb_random(uint64_t *random);

/** ---- Environments --------------------------------------------------------------------------- */

/** A running episode; valid during its callbacks. */
typedef struct shmb_episode shmb_episode;

/** An agent's action. */
typedef struct shmb_action {
    /** The agent's name; NULL: the unnamed agent. */
    const char *agent;
    /** The choice; 0 with SHMB_RAW. */
    int64_t index;
    /** The advice that it was chosen from; data is NULL if there are several fields, or none. */
    shmb_tensor advice;
    /** Read all of the advice with shmb_advice(runner, name, ...), until the next question. */
    shmb_runner *runner;
} shmb_action;

/**
 * An agent. Set size = sizeof(shmb_agent) and zero the rest. Several agents may share a runner. You
 * may change an agent whenever no shmb_drive uses it.
 */
typedef struct shmb_agent {
    /** sizeof(shmb_agent). */
    size_t size;
    /** The agent's name; may be NULL for the only agent. */
    const char *name;
    /** The runner that it asks, without bound features. */
    shmb_runner *runner;
    /** How it chooses. */
    shmb_choice choice;
    /** The field to choose from, if there are several; NULL: the only one. */
    const char *advice;
    /** Initially the seed, then the generator's state. */
    uint64_t random;
    /** The number of actions in the last episode. */
    int64_t steps;
    /** The sum of rewards in the last episode. */
    double reward;
} shmb_agent;

/** A pass. Set size = sizeof(shmb_environment). A status other than SHMB_OK ends the episode. */
typedef struct shmb_environment {
    /** sizeof(shmb_environment). */
    size_t size;
    /** Passed to the callbacks. */
    void *context;
    /** Begins an episode: fills the first observation, or calls shmb_set_done. */
    shmb_status (*reset)(void *context, shmb_episode *e);
    /** Performs the action and fills the next observation, or calls shmb_set_done. */
    shmb_status (*step)(void *context, shmb_episode *e, const shmb_action *action);
    /**
     * Called when there is no action, with the reason in status and why. To continue with the
     * compiler's heuristic, sets action->index and returns SHMB_OK; any other status ends the
     * episode. NULL: end it.
     */
    shmb_status (*on_error)(void *context, shmb_episode *e, shmb_status status, const char *why,
                            shmb_action *action);
} shmb_environment;

/** For the callbacks. */

/** Marks the episode as done. */
void shmb_set_done(shmb_episode *e);
/**
 * Sets the reason of a failure, in UTF-8, before the callback returns its status. shmb_drive and
 * the trainer report it instead of that status's name. It is copied, at most 2047 bytes.
 */
void shmb_set_error(shmb_episode *e, const char *text);
/**
 * Selects the agent that acts next, and returns its runner for you to fill. NULL: the agent named
 * by the last call, else the one that acted last, initially agents[0]. Features already filled into
 * another runner are discarded. An unknown name ends the episode with INVALID.
 */
shmb_runner *shmb_next_agent(shmb_episode *e, const char *name);
/**
 * Rewards an agent; several rewards add up. NULL: the agent that acted. If agents share a runner,
 * "reward" is their sum and "reward.NAME" each agent's part. A NaN ends the episode with INVALID.
 */
void shmb_add_reward(shmb_episode *e, const char *agent, double reward);

/** For the compiler. */

/**
 * Runs an episode until it is done or after max_steps actions (0 or less: no limit); both return
 * SHMB_OK. Exceptions must not pass through it. *why (may be NULL): the error's text, valid until
 * the next call on agents[0]'s runner. Errors: INVALID (sizes, no agent, no runner, no such agent),
 * NO_MEMORY, those of the callbacks and, without on_error, those of evaluate and shmb_choose.
 * Errors while the end is reported are ignored. Because the caller gets all other errors, these
 * runners no longer report failures on stderr.
 */
shmb_status shmb_drive(const shmb_environment *environment, shmb_agent *const *agents,
                       int64_t count, int64_t max_steps, const char **why);

#ifdef __cplusplus
}
#endif

#endif
