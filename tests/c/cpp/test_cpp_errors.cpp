/* Every error arrives as a status and a message at evaluate, and as an exception only where value()
 * asks for one. */
#include <unistd.h>

#include <cassert>
#include <cstdio>
#include <cstdlib>

#include "echo_host.h"
#include "shmbridge.hpp"

using shmbridge::Runner;
using shmbridge::span;

template <class T>
static bool says(const shmbridge::result<T> &result, shmb_status status, const char *text) {
    return !result && result.status() == status && std::strstr(result.message(), text);
}

static void no_host_is_an_error_of_evaluate() {
    Runner r("shm://nobody-here");
    assert(!r && r.status() == SHMB_NO_HOST && *r.message());
    span<float> x = r.feature<float>("x", {10}); /* writing stays safe */
    assert(x.size() == 10);
    x[9] = 1;
    r.populate({{"y", "text"}, {"z", {1, 2}}});
    assert(r.evaluate<int64_t>().value_or(7) == 7);
    assert(says(r.evaluate(), SHMB_NO_HOST, "nobody-here"));
}

static void the_default_is_logged_and_counted() {
    std::string said;
    shmbridge::options with;
    with.default_advice = "3";
    with.log = [](void *context, const char *line) {
        *static_cast<std::string *>(context) += line;
    };
    with.log_context = &said;
    Runner r("shm://nobody-here", with);
    assert(*r.evaluate<int64_t>() == 3 && *r.evaluate<int64_t>() == 3);
    assert(said.find("continuing with the default advice 3 (counted; reported once)") !=
               std::string::npos &&
           said.find('\n') == std::string::npos);
    assert(r.stats().questions == 2 && r.stats().defaulted == 2 &&
           r.stats().failures[SHMB_NO_HOST] == 2 && r.expected().empty());
    assert(Runner().stats().questions == 0 && Runner().expected("one").empty());
}

static void bad_urls(const char *name) {
    assert(Runner("carrier-pigeon://x").status() == SHMB_UNSUPPORTED);
    assert(Runner(std::string(name) + "?deadline=soon").status() == SHMB_INVALID);
    setenv("SHMBRIDGE_URL", name, 1);
    assert(Runner(nullptr));
}

static void asking_a_runner_that_is_not_open_is_reported_once() {
    char line[300] = "", more[300];
    FILE *file = std::tmpfile();
    int saved = dup(2);
    dup2(fileno(file), 2);
    for (int i = 0; i < 2; i++) {
        assert(Runner().evaluate<int64_t>().status() == SHMB_CLOSED);
        (void)Runner().receive(shmbridge::ticket<void>{});
    }
    dup2(saved, 2);
    std::rewind(file);
    assert(std::fgets(line, sizeof line, file) && std::strstr(line, "never opened"));
    assert(!std::fgets(more, sizeof more, file));
}

template <class Ask>
static void reports(const char *name, const char *why, Ask ask) {
    std::string said;
    shmbridge::options with;
    with.log = [](void *context, const char *line) {
        *static_cast<std::string *>(context) += line;
    };
    with.log_context = &said;
    Runner r(name, with);
    ask(r.populate({{"x", {1, 2}}}));
    assert(said.find(why) != std::string::npos && said.find("no advice (") != std::string::npos);
}

static void advice_that_cannot_be_read_is_reported(const char *name) {
    const char *one = "expected advice of one element", *text = "expected a string as advice";
    reports(name, one, [](Runner &r) { (void)r.evaluate<int>(); });
    reports(name, one, [](Runner &r) { (void)r.receive(r.send<int>()); });
    reports(name, text, [](Runner &r) { (void)r.evaluate<std::string>(); });
    reports(name, text, [](Runner &r) { (void)r.receive(r.send<std::string>()); });
    reports(name, "named \"y\"", [](Runner &r) { (void)r.evaluate(), (void)r.advice<int>("y"); });
}

static void closed_and_moved_runners_accept_every_call(const char *name) {
    Runner none, r(name);
    Runner moved = std::move(r);
    assert(*moved.populate({{"number", int64_t{1}}}).evaluate<int64_t>() == 1);
    none = std::move(moved);
    assert(*none.populate({{"number", int64_t{2}}}).evaluate<int64_t>() == 2);
    none.close();
    for (Runner *gone : {&none, &r, &moved}) {
        assert(!*gone && !gone->get() && gone->feature<float>("x", 3).empty() &&
               gone->bind<float>("x", 3).empty());
        gone->discard();
        gone->set_deadline(1);
        gone->interrupt();
        assert(says(gone->populate({{"x", 1}}).evaluate<int>(), SHMB_CLOSED, "closed"));
        assert(gone->advice<int>("x").status() == SHMB_CLOSED &&
               gone->tensor(nullptr).status() == SHMB_CLOSED);
    }
}

static void advice_of_another_type(Runner &r) {
    std::vector<float> two = {1, 2};
    assert(says(r.populate({{"x", two}}).evaluate<float>(), SHMB_MISMATCH,
                "expected advice of one element"));
    assert(says(r.advice<int>("x"), SHMB_MISMATCH,
                "expected advice of one element, found \"x\" with 2"));
    assert(says(r.advice<std::string>("x"), SHMB_MISMATCH, "expected a string"));
    assert(says(r.advice<std::vector<std::vector<float>>>("x"), SHMB_MISMATCH,
                "expected a ragged list"));
    assert(*r.advice<std::vector<float>>("x") == two); /* still there */
    assert(says(r.advice<float>("y"), SHMB_MISMATCH, "\"y\", found 1: x"));
    assert(says(r.populate({{"x", "text"}}).evaluate<int>(), SHMB_MISMATCH, ""));
    auto strings = r.populate({{"x", "text"}}).evaluate<std::vector<std::string>>();
    assert(says(strings, SHMB_MISMATCH, "a string of 4 uint8"));
}

static void the_host_converts_exactly_or_not_at_all(Runner &r) {
    assert(*r.populate({{"number", int64_t{200}}}).evaluate<uint8_t>() == 200);
    assert(*r.populate({{"number", int64_t{1}}}).evaluate<bool>());
    assert(*r.populate({{"number", int64_t{-5}}}).evaluate<double>() == -5);
    assert(says(r.populate({{"number", int64_t{200}}}).evaluate<int8_t>(), SHMB_INEXACT, "200"));
}

static void errors_of_filling_stick_until_evaluate(Runner &r) {
    r.populate({{"", 1}, {"x", 2}});
    assert(says(r.evaluate<int>(), SHMB_INVALID, "name"));
    assert(r.feature<float>("x", {-1}).empty());
    assert(says(r.evaluate<int>(), SHMB_INVALID, "\"x\""));
    int64_t many[9] = {};
    assert(r.feature<float>("x", shmbridge::dims(many)).empty());
    assert(says(r.evaluate<int>(), SHMB_INVALID, "rank"));
    r.populate({{"x", std::vector<float>(1000000)}});
    assert(says(r.evaluate<int>(), SHMB_TOO_LARGE, "\"x\""));
    assert(*r.populate({{"x", 3}}).evaluate<int>() == 3);
}

static void results_keep_their_texts(const char *name) {
    Runner r(name);
    auto failed = r.populate({{"fail", "the model has a cold"}}).evaluate<int64_t>();
    /* other and longer than what a string keeps inside */
    shmbridge::result<> other = r.populate({{"", 1}}).evaluate();
    auto found = *r.populate({{"x", 3}}).evaluate<int>();
    auto mismatch = r.advice<std::string>("x");
    auto copy = mismatch;
    Runner moved = std::move(r);
    assert(*moved.populate({{"x", 3}}).evaluate<int>() == found &&
           *moved.advice<int>("x") == found);
    moved.close();
    assert(says(failed, SHMB_MODEL, "the model has a cold") && says(other, SHMB_INVALID, "name"));
    assert(says(mismatch, SHMB_MISMATCH, "expected a string") &&
           says(copy, SHMB_MISMATCH, "expected a string"));
}

static void the_models_error_and_a_deadline(Runner &r) {
    assert(says(r.populate({{"fail", "the model has a cold"}}).evaluate<float>(), SHMB_MODEL,
                "the model has a cold"));
    r.set_deadline(0.01);
    assert(says(r.populate({{"slow", 1}}).evaluate<float>(), SHMB_TIMEOUT, "0.01"));
    r.set_deadline(0);
}

static void exceptions_are_opt_in(Runner &r) {
    (void)r;
#ifdef __cpp_exceptions
    assert(r.populate({{"number", int64_t{4}}}).evaluate<int64_t>().value() == 4);
    r.populate({{"x", 1}}).evaluate().value();
    bool thrown = false;
    try {
        (void)r.populate({{"fail", "again"}}).evaluate<int64_t>().value();
    } catch (const shmbridge::error &e) {
        thrown = e.status() == SHMB_MODEL && std::strcmp(e.what(), "again") == 0;
    }
    assert(thrown);
#endif
}

int main() {
    no_host_is_an_error_of_evaluate();
    the_default_is_logged_and_counted();
    echo_host *host = echo_host_start("cpp-errors");
    asking_a_runner_that_is_not_open_is_reported_once();
    advice_that_cannot_be_read_is_reported(echo_host_name(host));
    bad_urls(echo_host_name(host));
    closed_and_moved_runners_accept_every_call(echo_host_name(host));
    Runner r(echo_host_name(host));
    advice_of_another_type(r);
    the_host_converts_exactly_or_not_at_all(r);
    errors_of_filling_stick_until_evaluate(r);
    results_keep_their_texts(echo_host_name(host));
    the_models_error_and_a_deadline(r);
    exceptions_are_opt_in(r);
    echo_host_stop(host);
    assert(r.evaluate<int>().status() == SHMB_CLOSED ||
           r.evaluate<int>().status() == SHMB_HOST_GONE);
}
