/* Environments and agents as classes: overridden, several, errors, and exceptions where there are
 * some. */
#include <cassert>

#include "shmbridge/plugin.h"
#include "shmbridge_rl.hpp"

using namespace shmbridge;

/* ---- A runner that answers as its URL says ---- */

static shmb_status open_it(void *, const char *where, const shmb_options *, void **state,
                           shmb_sink *) {
    *state = new std::string(where);
    return SHMB_OK;
}

static void close_it(void *state) { delete static_cast<std::string *>(state); }

static std::string said; /* what a learner heard at the end */

static shmb_status answer(void *state, const shmb_tensor *f, int64_t count, shmb_dtype, double,
                          shmb_sink *advice) {
    const std::string &what = *static_cast<std::string *>(state);
    int64_t size = 3;
    if (what == "fails") return shmb_sink_fail(advice, SHMB_MODEL, "no idea");
    for (int64_t i = 0; i < count; i++)
        if ((!std::strcmp(f[i].name, "done") || !std::strcmp(f[i].name, "truncated")) &&
            *static_cast<const bool *>(f[i].data))
            said += f[i].name;
        else if (!std::strcmp(f[i].name, "error"))
            said += std::string(static_cast<const char *>(f[i].data), f[i].size) + ": ";
    auto *to = static_cast<float *>(
        shmb_sink_field(advice, what.c_str(), SHMB_FLOAT32, SHMB_TENSOR, 1, &size, nullptr));
    for (int i = 0; i < 3; i++) to[i] = static_cast<float>(i % 2);
    return SHMB_OK;
}

static const shmb_runner_kind kind = {sizeof kind, "policy", nullptr, open_it, answer, close_it};

/* ---- The pass ---- */

struct Count : Environment {
    int at = 0;
    std::vector<std::string> turns; /* whose */
    std::vector<int64_t> actions;
    std::vector<float> raw;
    bool knows = false;
    shmb_status stops = SHMB_OK;
    int throws_at = -1;

    void observe() {
        Runner &r =
            turns.empty() ? next_agent() : next_agent(turns[static_cast<size_t>(at)].c_str());
        r.feature<float>("x", {2})[0] = 1;
        r.populate({{"at", int64_t{at}}});
    }
    void reset() override {
        at = 0;
        actions.clear();
        observe();
    }
    void step(const Action &action) override {
#ifdef __cpp_exceptions
        if (at == throws_at) throw std::runtime_error("a bug in the pass");
#endif
        assert(turns.empty() || action.agent == turns[static_cast<size_t>(at)]);
        actions.push_back(action.index);
        if (action.advice.data)
            raw = action.as<std::vector<float>>().value_or(std::vector<float>{});
        add_reward(0.5);
        add_reward(1);
        if (stops) return stop(stops, "no such loop");
        if (++at == 3) set_done();
        else observe();
    }
    bool on_error(const result<> &why, Action &action) override {
        assert(!why && *why.message() && !action.advice.data);
        action.index = 7;
        return knows;
    }
};

static void a_policy(Runner &policy) {
    Count count;
    Agent agent(policy);
    assert(drive(count, {&agent}) && count.actions == (std::vector<int64_t>{1, 1, 1}));
    assert(agent.steps() == 3 && agent.reward() == 4.5 && agent.name().empty() &&
           &agent.runner() == &policy);
    assert(drive(count, {&agent}, 2) && agent.steps() == 2);
    Agent raw(policy, "", SHMB_RAW);
    assert(drive(count, {&raw}) && count.actions[0] == 0 &&
           count.raw == (std::vector<float>{0, 1, 0}));
    Agent one(policy, "", SHMB_ARGMAX, 0, "policy"), two(policy, "", SHMB_SAMPLE_LOGITS, 5),
        same(policy, "", SHMB_SAMPLE_LOGITS, 5);
    assert(drive(count, {&one}) && count.actions[0] == 1);
    assert(drive(count, {&two}));
    std::vector<int64_t> sampled = count.actions;
    assert(drive(count, {&same}) && count.actions == sampled && two.random() == same.random());
    count.stops = SHMB_DROPPED;
    result<> stopped = drive(count, {&agent});
    assert(stopped.status() == SHMB_DROPPED && agent.steps() == 1 &&
           std::strstr(stopped.message(), "step failed: no such loop"));
    count.stops = SHMB_OK;
    assert(drive(count, {&agent}));
}

static void errors(Runner &policy, Runner &fails) {
    Count count;
    Agent agent(fails), good(policy, "good");
    result<> episode = drive(count, {&agent});
    assert(!episode && episode.status() == SHMB_MODEL &&
           !std::strcmp(episode.message(), "no idea"));
    count.knows = true;
    assert(drive(count, {&agent}) && count.actions == (std::vector<int64_t>{7, 7, 7}));
    assert(drive(count, {}).status() == SHMB_INVALID);
    count.turns = {"good", "nobody", "good"};
    assert(std::strstr(drive(count, {&good}).message(), "\"nobody\""));
    Runner closed;
    Agent none(closed);
    assert(drive(count, {&none}).status() == SHMB_INVALID);
}

static void several_agents(Runner &policy) {
    Count count;
    Runner own("policy://policy");
    Agent a(policy, "a"), b(own, "b"), c(policy, "c");
    std::vector<Agent *> all = {&a, &b, &c};
    count.turns = {"b", "c", "b"};
    assert(drive(count, all) && count.actions == (std::vector<int64_t>{1, 1, 1}));
    assert(a.steps() == 0 && b.steps() == 2 && b.reward() == 3 && c.reward() == 1.5);
}

static void a_learner(Runner &learner) {
    Count count;
    Agent agent(learner);
    assert(drive(count, {&agent}) && said == "done");
    assert(drive(count, {&agent}, 1) && said == "donetruncated");
    said.clear();
}

#ifdef __cpp_exceptions
static void exceptions_come_out_of_drive(Runner &learner) {
    Count count;
    Agent agent(learner);
    for (int at : {0, 1}) {
        count.throws_at = at;
        try {
            (void)drive(count, {&agent});
            assert(false);
        } catch (const std::runtime_error &error) {
            assert(!std::strcmp(error.what(), "a bug in the pass"));
        }
        assert(said == "the environment's step failed: a bug in the pass: truncated");
        said.clear();
    }
    count.throws_at = -1;
    assert(drive(count, {&agent}));
}
#endif

int main() {
    assert(shmb_register_runner(&kind) == SHMB_OK);
    Runner policy("policy://policy"), fails("policy://fails"), learner("policy://learner");
    a_policy(policy);
    errors(policy, fails);
    several_agents(policy);
    a_learner(learner);
#ifdef __cpp_exceptions
    exceptions_come_out_of_drive(learner);
#endif
}
