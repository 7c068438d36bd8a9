/* Reinforcement learning inside the compiler, in C++17 and later: shmbridge/environment.h as
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
 * Nothing here throws. What reset, step, on_error and act throw ends the episode, which a trainer
 * is told, and comes out of drive. */
#ifndef SHMBRIDGE_RL_HPP
#define SHMBRIDGE_RL_HPP

#include "shmbridge.hpp"
#include "shmbridge/environment.h"

#ifdef __cpp_exceptions
#include <exception>
#endif

namespace shmbridge {

/** What an agent does. Valid during the callback that gets it. */
struct Action {
    /** The agent's name; "": the nameless one's. */
    std::string_view agent;
    /** The choice; 0 with SHMB_RAW. */
    int64_t index;
    /** What the choice was made from; data is nullptr where that are several fields, or none. */
    shmb_tensor advice;
    /** Has all of the advice until it is asked again. */
    Runner &runner;

    /** The advice as Runner::advice gives it. */
    template <class T>
    result<T> as() const {
        return runner.advice<T>(advice.name);
    }
};

/** Who acts: asks its runner, which several may share, and chooses. The runner must outlive it. */
class Agent {
public:
    /**
     * choice: how the action comes of the advice. seed: of its random numbers. advice: the field to
     * choose from, where there are several; "": the only one.
     */
    explicit Agent(Runner &runner, std::string name = {}, shmb_choice choice = SHMB_ARGMAX,
                   uint64_t seed = 0, std::string advice = {})
        : runner_(runner), name_(std::move(name)), advice_(std::move(advice)) {
        c_.size = sizeof c_;
        c_.choice = choice;
        c_.random = seed;
    }
    virtual ~Agent() = default;
    Agent(const Agent &) = delete;
    Agent &operator=(const Agent &) = delete;

    /** Asked before the choice: sets action.index and returns true, or leaves it to the choice. */
    virtual bool act(Action &) { return false; }

    /** The agent's name. */
    const std::string &name() const { return name_; }
    /** Whom it asks. */
    Runner &runner() const { return runner_; }
    /** Actions of the last episode. */
    int64_t steps() const { return c_.steps; }
    /** The sum of the last episode's rewards. */
    double reward() const { return c_.reward; }
    /** The generator's next number of [0, 1), as shmb_random. */
    double random() { return shmb_random(&c_.random); }

private:
    friend class Driver;
    Runner &runner_;
    std::string name_, advice_;
    shmb_agent c_ = {};
};

/** A pass. Its protected members are for the time of a callback. */
class Environment {
public:
    virtual ~Environment() = default;

    /** Begins: fills the first observation, or says that it is done. */
    virtual void reset() = 0;
    /** Does what the action says, and fills the next observation, or says that it is done. */
    virtual void step(const Action &action) = 0;
    /**
     * There is no action: sets action.index and returns true to go on, with the compiler's
     * heuristic.
     */
    virtual bool on_error(const result<> &, Action &) { return false; }

protected:
    /** The episode is over. */
    void set_done() { shmb_set_done(episode_); }
    /** Ends the episode with an error. */
    void stop(shmb_status status) { stopped_ = status; }
    /**
     * Says whose turn is next; its runner, to fill. nullptr: who acted, at first the first, or who
     * was named since.
     */
    inline Runner &next_agent(const char *name = nullptr);
    /** Rewards an agent, nullptr: who acted; several rewards add up. */
    void add_reward(double reward, const char *agent = nullptr) {
        shmb_add_reward(episode_, agent, reward);
    }

private:
    friend class Driver;
    shmb_episode *episode_ = nullptr;
    const class Driver *driver_ = nullptr;
    shmb_status stopped_ = SHMB_OK;
};

/* Joins them to the C driver; use drive(). */
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
            a->c_.act = on_act;
            a->c_.context = this;
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

    /* Whose C runner that is. */
    Runner &runner_of(const shmb_runner *r) const {
        size_t i = 0;
        while (agents_[i]->runner_.get() != r) i++;
        return agents_[i]->runner_;
    }

private:
    /* Calls back; what that throws waits until C has returned. */
    template <class F>
    void call(F &&callback) {
#ifdef __cpp_exceptions
        if (thrown_) return;
        try {
            callback();
        } catch (...) {
            thrown_ = std::current_exception();
            environment_.stopped_ = SHMB_MODEL; /* any but OK: nobody sees it */
        }
#else
        callback();
#endif
    }
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
    static int32_t on_act(void *context, shmb_agent *agent, shmb_action *action) {
        Driver &d = *static_cast<Driver *>(context);
        bool made = false;
        for (Agent *a : d.agents_)
            if (&a->c_ == agent)
                d.call([&] {
                    Action its = d.of(action);
                    made = a->act(its);
                    action->index = its.index;
                });
        return made || d.environment_.stopped_; /* step, which follows, ends the episode */
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
 * Runs an episode, as shmb_drive: until it is done, or max_steps actions (0: any number) are over.
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
