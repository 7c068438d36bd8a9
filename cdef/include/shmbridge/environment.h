/* shmbridge: a pass as an environment of reinforcement learning.
 *
 * It is written once: agents ask their runners, and the URL says whether a trainer answers, which
 * explores, or a model. In C++ the same as classes: shmbridge_rl.hpp.
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
 * A request has the observation and, if its agent has a name, the string "agent". A trainer calls
 * its advice "learner" (or adds a field of that name, where it has several): until the episode ends
 * that runner's requests then also have "reward" (float64: the sum since its request before),
 * where several agents share it "reward.NAME" of each (the same, its own part),
 * "done" and "truncated" (bool) and "step" (int64: actions so far), and a last request reports the
 * end: done, or truncated when the episode ended in any other way. It has what was filled by then,
 * and its advice is ignored. So a request without "step" begins an episode, and who never says
 * "learner" is asked for advice alone.
 *
 * Ownership: the caller's are the environment, the agents and their runners, at least while
 * shmb_drive runs. Threads: all of an episode is in the thread that called shmb_drive.
 */
#ifndef SHMBRIDGE_ENVIRONMENT_H
#define SHMBRIDGE_ENVIRONMENT_H

#include "shmbridge.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Choices --------------------------------------------------------------------------------- */

/** How an agent makes an action of advice. */
typedef enum shmb_choice {
    /** The index of the greatest element, of equal ones the first; row-major with more dims. */
    SHMB_ARGMAX = 0,
    /** An index i at random, in proportion to exp(element i); -infinity: never. */
    SHMB_SAMPLE_LOGITS = 1,
    /** The same in proportion to element i itself; they need not add up to 1. */
    SHMB_SAMPLE_PROBABILITIES = 2,
    /** No index: the environment reads the advice. */
    SHMB_RAW = 3
} shmb_choice;

/**
 * Chooses from a tensor of numbers, in the same way on every machine. A single integer (or bool) is
 * an action already, as of a trainer. *random: shmb_random's, of which a sample takes one number.
 * Errors, told by *why (static; may be NULL): MISMATCH (nothing to choose from, no numbers, or a
 * single float of rank 0), MODEL (a NaN; to sample: also a negative probability, or nothing that
 * may be chosen), INVALID (no such choice, or SHMB_RAW).
 */
shmb_status shmb_choose(const shmb_tensor *advice, shmb_choice how, uint64_t *random,
                        int64_t *action, const char **why);
/**
 * The next number of [0, 1), a multiple of 2^-53: SplitMix64, whose state is *random. Any number is
 * a seed.
 */
double shmb_random(uint64_t *random);

/* ---- Environments ---------------------------------------------------------------------------- */

/** An episode under way; valid during its callbacks. */
typedef struct shmb_episode shmb_episode;

/** What an agent does. */
typedef struct shmb_action {
    /** Whose; NULL: the nameless one's. */
    const char *agent;
    /** The choice; 0 with SHMB_RAW. */
    int64_t index;
    /** What it was made from; data NULL where that are several fields, or none. */
    shmb_tensor advice;
    /** Has all of the advice until it is asked again: shmb_advice(runner, name, ...). */
    shmb_runner *runner;
} shmb_action;

/**
 * Who acts. Set size = sizeof(shmb_agent) and zero the rest; several may share a runner. The caller
 * may change what no shmb_drive uses.
 */
typedef struct shmb_agent {
    /** sizeof(shmb_agent). */
    size_t size;
    /** The agent's name; NULL: the only agent needs none. */
    const char *name;
    /** Whom it asks; its features are not bound. */
    shmb_runner *runner;
    /** How it chooses. */
    shmb_choice choice;
    /** The field to choose from, where there are several; NULL: the only one. */
    const char *advice;
    /** The seed, then the generator's state. */
    uint64_t random;
    /**
     * Asked before `choice`, with the advice in *action: sets action->index and returns 1, or
     * leaves it to `choice` with 0. May be NULL.
     */
    int32_t (*act)(void *context, struct shmb_agent *agent, shmb_action *action);
    /** Given to act. */
    void *context;
    /** The last episode's actions. */
    int64_t steps;
    /** The last episode's sum of rewards. */
    double reward;
} shmb_agent;

/** A pass. Set size = sizeof(shmb_environment). A status that is not SHMB_OK ends the episode. */
typedef struct shmb_environment {
    /** sizeof(shmb_environment). */
    size_t size;
    /** Given to the callbacks. */
    void *context;
    /** Begins: fills the first observation, or says that it is done. */
    shmb_status (*reset)(void *context, shmb_episode *e);
    /** Does what the action says, and fills the next observation, or says that it is done. */
    shmb_status (*step)(void *context, shmb_episode *e, const shmb_action *action);
    /**
     * There is no action, for the reason of status and why: sets action->index and returns SHMB_OK
     * to go on, with the compiler's heuristic, or ends the episode. NULL: ends it.
     */
    shmb_status (*on_error)(void *context, shmb_episode *e, shmb_status status, const char *why,
                            shmb_action *action);
} shmb_environment;

/* For the callbacks. */

/** Says that the episode is done. */
void shmb_set_done(shmb_episode *e);
/**
 * Says whose turn is next, and returns its runner, to fill. NULL: who acted, at first agents[0], or
 * who was named since. What another runner had been filled with is forgotten. A name that no agent
 * has ends the episode with INVALID.
 */
shmb_runner *shmb_next_agent(shmb_episode *e, const char *name);
/**
 * Rewards an agent, NULL: who acted; several rewards add up. Of agents that share a runner "reward"
 * is the sum, and "reward.NAME" each one's own.
 */
void shmb_add_reward(shmb_episode *e, const char *agent, double reward);

/* For the compiler. */

/**
 * Runs an episode until it is done, or max_steps actions (0 or less: any number) are over, which is
 * SHMB_OK too. Exceptions must not pass through. *why (may be NULL): the error's text, valid until
 * the next call on agents[0]'s runner. Errors: INVALID (sizes, no agent, no runner, no such agent),
 * NO_MEMORY, what the callbacks return, and without on_error what evaluate and shmb_choose do. The
 * report's errors are ignored. The caller gets all others, so from then on these runners write no
 * line about a failure to stderr.
 */
shmb_status shmb_drive(const shmb_environment *environment, shmb_agent *const *agents,
                       int64_t count, int64_t max_steps, const char **why);

#ifdef __cplusplus
}
#endif

#endif
