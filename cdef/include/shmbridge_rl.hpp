/**
 * Reinforcement learning inside the compiler, in C++17 and later: shmbridge/environment.h as
 * classes.
 *
 *     class Unroll : public shmbridge::Environment {
 *         void reset() override { observe(next_agent()); }  // fills its Runner
 *         void step(const shmbridge::Action &action) override {
 *             add_reward(apply(action.index));
 *             if (at_the_end()) set_done();
 *             else observe(next_agent());
 *         }
 *     };
 *     shmbridge::Runner runner(nullptr);  // $SHMBRIDGE_URL: a trainer, or a model
 *     shmbridge::Agent agent(runner);
 *     Unroll pass;
 *     if (auto episode = shmbridge::drive(pass, {&agent}, 1000); !episode) warn(episode.message());
 *
 * Nothing here throws by itself. An exception in reset, step or on_error ends the episode, is
 * reported to the trainer, and is rethrown by drive.
 */
#ifndef SHMBRIDGE_RL_HPP
#define SHMBRIDGE_RL_HPP

#include "shmbridge.hpp"
#include "shmbridge/environment.h"

#ifdef __cpp_exceptions
#include <exception>
#endif

namespace shmbridge {

/** An agent's action. Valid during the callback that receives it. */
struct Action {
    /** The agent's name; "": the unnamed agent. */
    std::string_view agent;
    /** The choice; 0 with SHMB_RAW. */
    int64_t index;
    /** The advice that it was chosen from; data is nullptr if there are several fields, or none. */
    shmb_tensor advice;
    /** Read all of the advice from it, until the next question. */
    Runner &runner;

    /** The advice, as Runner::advice returns it. */
    template <class T>
    result<T> as() const {
        return runner.advice<T>(advice.name);
    }
};

/** An agent asks its runner and chooses. Agents may share a runner, which must outlive them. */
class Agent {
public:
    /**
     * choice: how to choose an action from advice. seed: for its random numbers. advice: the field
     * to choose from, if there are several; "": the only one.
     */
    explicit Agent(Runner &runner, std::string name = {}, shmb_choice choice = SHMB_ARGMAX,
                   uint64_t seed = 0, std::string advice = {})
        : runner_(runner), name_(std::move(name)), advice_(std::move(advice)) {
        c_.size = sizeof c_;
        c_.choice = choice;
        c_.random = seed;
    }
    Agent(const Agent &) = delete;
    Agent &operator=(const Agent &) = delete;

    /** The agent's name. */
    const std::string &name() const { return name_; }
    /** The runner that it asks. */
    Runner &runner() const { return runner_; }
    /** The number of actions in the last episode. */
    int64_t steps() const { return c_.steps; }
    /** The sum of the last episode's rewards. */
    double reward() const { return c_.reward; }
    /** The next random number in [0, 1), from shmb_random. */
    double random() { return shmb_random(&c_.random); }

private:
    friend class Driver;
    Runner &runner_;
    std::string name_, advice_;
    shmb_agent c_ = {};
};

/** A pass. Call its protected members only during a callback. */
class Environment {
public:
    virtual ~Environment() = default;

    /** Begins an episode: fill the first observation, or call set_done. */
    virtual void reset() = 0;
    /** Performs the action: fill the next observation, or call set_done. */
    virtual void step(const Action &action) = 0;
    /**
     * Called when there is no action. To continue with the compiler's heuristic, set action.index
     * and return true; false ends the episode.
     */
    virtual bool on_error(const result<> &, Action &) { return false; }

protected:
    /** Marks the episode as done. */
    void set_done() { shmb_set_done(episode_); }
    /** Ends the episode with an error; why: the reason, in UTF-8, also for the trainer. */
    void stop(shmb_status status, const char *why = "") {
        shmb_set_error(episode_, why);
        stopped_ = status;
    }
    /**
     * Selects the agent that acts next, and returns its runner for you to fill. nullptr: the agent
     * named by the last call, else the one that acted last, initially the first agent.
     */
    inline Runner &next_agent(const char *name = nullptr);
    /** Rewards an agent; several rewards add up. nullptr: the agent that acted. */
    void add_reward(double reward, const char *agent = nullptr) {
        shmb_add_reward(episode_, agent, reward);
    }

private:
    friend class Driver;
    shmb_episode *episode_ = nullptr;
    const class Driver *driver_ = nullptr;
    shmb_status stopped_ = SHMB_OK;
};

/* Connects them to the C driver; use drive(). */
class Driver {
public:
    Driver(Environment &environment, span<Agent *const> agents)
        : environment_(environment), agents_(agents) {}

    result<> run(int64_t max_steps) {
        shmb_environment c = {sizeof c, this, on_reset, on_step, on_failure};
        std::vector<shmb_agent *> agents;
        for (Agent *a : agents_) {
            a->c_.name = a->name_.c_str();
            a->c_.advice = a->advice_.empty() ? nullptr : a->advice_.c_str();
            a->c_.runner = a->runner_.get();
            agents.push_back(&a->c_);
        }
        const char *why = "";
        environment_.driver_ = this;
        shmb_status status =
            shmb_drive(&c, agents.data(), static_cast<int64_t>(agents.size()), max_steps, &why);
        environment_.driver_ = nullptr;
        environment_.episode_ = nullptr;
#ifdef __cpp_exceptions
        if (thrown_) std::rethrow_exception(thrown_);
#endif
        return {status, why};
    }

    /* The Runner of a C runner. */
    Runner &runner_of(const shmb_runner *r) const {
        size_t i = 0;
        while (agents_[i]->runner_.get() != r) i++;
        return agents_[i]->runner_;
    }

private:
    /* Calls back, and keeps an exception until the C code has returned. */
    template <class F>
    void call(F &&callback) {
#ifdef __cpp_exceptions
        if (thrown_) return;
        try {
            callback();
        } catch (const std::exception &error) {
            keep(error.what());
        } catch (...) {
            keep("an exception that is no std::exception");
        }
#else
        callback();
#endif
    }
#ifdef __cpp_exceptions
    void keep(const char *what) {
        thrown_ = std::current_exception();
        environment_.stop(SHMB_MODEL, what); /* any status; no caller sees it */
    }
#endif
    static Driver &begin(void *context, shmb_episode *e) {
        Driver &d = *static_cast<Driver *>(context);
        d.environment_.episode_ = e;
        return d;
    }
    shmb_status outcome() { return std::exchange(environment_.stopped_, SHMB_OK); }
    Action of(const shmb_action *a) const {
        return {a->agent ? a->agent : "", a->index, a->advice, runner_of(a->runner)};
    }

    static shmb_status on_reset(void *context, shmb_episode *e) {
        Driver &d = begin(context, e);
        d.call([&] { d.environment_.reset(); });
        return d.outcome();
    }
    static shmb_status on_step(void *context, shmb_episode *e, const shmb_action *action) {
        Driver &d = begin(context, e);
        d.call([&] { d.environment_.step(d.of(action)); });
        return d.outcome();
    }
    static shmb_status on_failure(void *context, shmb_episode *e, shmb_status status,
                                  const char *why, shmb_action *action) {
        Driver &d = begin(context, e);
        bool goes_on = false;
        d.call([&] {
            Action a = d.of(action);
            goes_on = d.environment_.on_error({status, why}, a);
            action->index = a.index;
        });
        shmb_status stopped = d.outcome();
        return stopped || goes_on ? stopped : status;
    }
    Environment &environment_;
    span<Agent *const> agents_;
#ifdef __cpp_exceptions
    std::exception_ptr thrown_;
#endif
};

inline Runner &Environment::next_agent(const char *name) {
    return driver_->runner_of(shmb_next_agent(episode_, name));
}

/**
 * Runs an episode, like shmb_drive, until it is done or after max_steps actions (0: no limit).
 */
inline result<> drive(Environment &environment, span<Agent *const> agents, int64_t max_steps = 0) {
    return Driver(environment, agents).run(max_steps);
}
/** The same: drive(pass, {&agent}). */
inline result<> drive(Environment &environment, std::initializer_list<Agent *> agents,
                      int64_t max_steps = 0) {
    return drive(environment, span<Agent *const>(agents.begin(), agents.size()), max_steps);
}

} // namespace shmbridge

#endif
