/* Whatever populate takes comes back through the host as it was, and evaluate gives it as each type
 * that fits. */
#include <cassert>
#include <cstdio>
#include <limits>
#if __cplusplus >= 202002L
#include <span>
#endif

#include "echo_host.h"
#include "shmbridge.hpp"

using shmbridge::Runner;
using shmbridge::span;

template <class Back, class T>
static void echoes(Runner &r, const T &sent, const Back &expected) {
    auto back = r.populate({{"x", sent}}).template evaluate<Back>();
    if (!back) std::fprintf(stderr, "%s: %s\n", __PRETTY_FUNCTION__, back.message());
    assert(back && *back == expected);
}

template <class T>
static void number_echoes(Runner &r, shmb_dtype dtype) {
    for (T x : {std::numeric_limits<T>::lowest(), T{}, T{1}, std::numeric_limits<T>::max()}) {
        echoes<T>(r, x, x);
        echoes<std::vector<T>>(r, x, {x});
    }
    assert(r.tensor(nullptr)->dtype == dtype && r.tensor("x")->rank == 0);
}

static void numbers(Runner &r) {
    number_echoes<bool>(r, SHMB_BOOL);
    number_echoes<int8_t>(r, SHMB_INT8);
    number_echoes<int16_t>(r, SHMB_INT16);
    number_echoes<int>(r, SHMB_INT32);
    number_echoes<long>(r, SHMB_INT64);
    number_echoes<long long>(r, SHMB_INT64);
    number_echoes<unsigned char>(r, SHMB_UINT8);
    number_echoes<uint16_t>(r, SHMB_UINT16);
    number_echoes<unsigned>(r, SHMB_UINT32);
    number_echoes<size_t>(r, SHMB_UINT64);
    number_echoes<float>(r, SHMB_FLOAT32);
    number_echoes<double>(r, SHMB_FLOAT64);
}

/* Do the dims of the last advice equal these? */
static bool has_dims(Runner &r, const std::vector<int64_t> &dims) {
    auto t = r.tensor(nullptr);
    return std::vector<int64_t>(t->dims, t->dims + t->rank) == dims;
}

static void tensors(Runner &r) {
    using floats = std::vector<float>;
    const float array[3] = {1, 2, 3};
    float matrix[2][3] = {{1, 2, 3}, {4, 5, 6}};
    std::array<std::array<float, 1>, 3> column = {{{1}, {2}, {3}}};
    floats vector = {1, 2, 3};
    echoes(r, array, vector);
    echoes(r, vector, vector);
    echoes(r, span(vector.data(), 2), floats{1, 2});
    echoes(r, span<const float>(vector), vector);
    echoes(r, floats{}, floats{});
    assert(has_dims(r, {0}));
    echoes(r, matrix, floats{1, 2, 3, 4, 5, 6});
    assert(has_dims(r, {2, 3}));
    echoes(r, column, vector);
    assert(has_dims(r, {3, 1}));
    echoes(r, std::vector<std::array<float, 2>>{{1, 2}, {3, 4}, {5, 6}}, floats{1, 2, 3, 4, 5, 6});
    assert(has_dims(r, {3, 2}));
    echoes(r, std::array<bool, 2>{true, false}, std::vector<bool>{true, false});
    auto ints = r.populate({{"x", {1, 2, 3}}}).evaluate<std::vector<int>>();
    assert(*ints == (std::vector<int>{1, 2, 3}));
#if __cplusplus >= 202002L
    echoes(r, std::span<float>(vector), vector);
    std::span<const float> standard = *r.evaluate<span<const float>>();
    assert(standard.empty());
#endif
}

static void texts(Runner &r) {
    using strings = std::vector<std::string>;
    std::string text = "naïve";
    const char *pointer = "foo";
    char buffer[16] = "bar"; /* ends at its zero, as strings do */
    echoes(r, "literal", std::string("literal"));
    echoes(r, text, text);
    echoes(r, std::string_view(text), std::string_view(text));
    echoes(r, pointer, std::string("foo"));
    echoes(r, buffer, std::string("bar"));
    echoes(r, std::string(), std::string());
    echoes(r, std::string("a\0b", 3), std::string("a\0b", 3));
    echoes(r, strings{"one", "", "three"}, strings{"one", "", "three"});
    echoes(r, strings{}, strings{});
    echoes(r, std::array<const char *, 2>{"a", "bc"}, std::vector<std::string_view>{"a", "bc"});
    auto literals = r.populate({{"x", {"one", "two"}}}).evaluate<strings>();
    assert(*literals == (strings{"one", "two"}));
}

static void ragged(Runner &r) {
    using rows = std::vector<std::vector<int64_t>>;
    rows sent = {{1, 2, 3}, {}, {4}};
    echoes(r, sent, sent);
    echoes(r, rows{}, rows{});
    echoes(r, std::vector<span<const int64_t>>(sent.begin(), sent.end()), sent);
    auto in_place = r.populate({{"x", sent}}).evaluate<std::vector<span<const int64_t>>>();
    assert(in_place->size() == 3 && (*in_place)[0].size() == 3 && (*in_place)[1].empty() &&
           (*in_place)[2][0] == 4);
    std::vector<std::vector<std::array<int64_t, 2>>> edges = {{{1, 2}, {3, 4}}, {}, {{5, 6}}};
    echoes(r, edges, rows{{1, 2, 3, 4}, {}, {5, 6}});
    assert(r.tensor("x")->rank == 2);
}

static void several(Runner &r) {
    std::string name = "text";
    assert(r.populate({{"n", 5}, {name, "five"}, {"x", {0.5, 1.5}}})
               .populate({{"more", true}})
               .evaluate());
    assert(*r.advice<int>("n") == 5 && *r.advice<std::string>(name) == "five" &&
           *r.advice<bool>("more"));
    /* converted, exactly */
    assert(*r.advice<double>("n") == 5 && *r.advice<uint8_t>("n") == 5 &&
           *r.advice<int64_t>("more") == 1);
    assert(r.advice<bool>("n").status() == SHMB_INEXACT);
    auto x = r.advice<span<const double>>("x");
    assert(x && x->size() == 2 && (*x)[1] == 1.5);
    assert(r.advice<int>(nullptr).status() == SHMB_MISMATCH); /* there are four */
}

int main() {
    echo_host *host = echo_host_start("cpp-types");
    {
        Runner r(echo_host_name(host));
        numbers(r);
        tensors(r);
        texts(r);
        ragged(r);
        several(r);
    }
    echo_host_stop(host);
}
