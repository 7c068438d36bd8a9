/* Features are written, and advice is read, where they lie in shared memory: without copies and
 * without allocations. */
#include <algorithm>
#include <cassert>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <new>
#include <string>

#include "echo_host.h"
#include "shmbridge.hpp"

using shmbridge::Runner;
using shmbridge::span;

static long allocations;

void *operator new(size_t size) {
    allocations++;
    void *memory = std::malloc(size ? size : 1);
    if (!memory) std::abort();
    return memory;
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }

static bool in_shared_memory(const void *at) {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        uintptr_t from, to;
        std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR, &from, &to);
        if (from <= reinterpret_cast<uintptr_t>(at) && reinterpret_cast<uintptr_t>(at) < to)
            return line.find("/dev/shm/shmb.") != std::string::npos;
    }
    return false;
}

static void feature_is_shared_memory(Runner &r) {
    span<float> x = r.feature<float>("x", {2, 300});
    assert(x.size() == 600 && reinterpret_cast<uintptr_t>(x.data()) % 64 == 0);
    assert(in_shared_memory(x.data()) && !in_shared_memory(&x));
    for (size_t i = 0; i < x.size(); i++) x[i] = static_cast<float>(i);
    auto back = r.evaluate<span<const float>>();
    assert(back && back->size() == 600 && (*back)[599] == 599 && r.tensor("x")->dims[1] == 300);
    assert(in_shared_memory(back->data()));
    size_t rows = 3;
    unsigned columns = 4; /* sizes of any integer type */
    assert(r.feature<int8_t>("x", {rows, columns, 5}).size() == 60);
    r.discard();
    int64_t sizes[] = {7, 1};
    assert(r.feature<int8_t>("x", shmbridge::dims(sizes)).size() == 7);
    r.discard();
    r.feature<int64_t>("x", {})[0] = 42;
    assert(*r.evaluate<int64_t>() == 42);
    assert(r.feature<int64_t>("x", 0).empty() && r.evaluate<span<const int64_t>>()->empty());
}

static void steady_requests_allocate_nothing(Runner &r) {
    float array[16] = {};
    const char *function = "main";
    long before = 0;
    for (int i = 0; i < 1000; i++) {
        if (i == 10) before = allocations;
        array[0] = static_cast<float>(i);
        r.populate({{"features", array}, {"function", function}, {"depth", i}});
        r.feature<double>("weights", {2, 2})[0] = i;
        assert(r.evaluate());
        assert((*r.advice<span<const float>>("features"))[0] == array[0] &&
               *r.advice<int>("depth") == i);
        assert(*r.advice<std::string_view>("function") == function);
        assert(*r.populate({{"number", int64_t{i}}}).evaluate<double>() == i);
    }
    assert(allocations == before);
}

static void bound_memory_stays(const char *name) {
    Runner r(name);
    span<int64_t> calls = r.bind<int64_t>("calls", 2);
    span<float> weights = r.bind<float>("weights", {2, 2});
    std::fill(weights.begin(), weights.end(), 0.5f);
    for (int64_t i = 0; i < 100; i++) {
        calls[1] = i;
        assert(r.evaluate());
        assert((*r.advice<span<const int64_t>>("calls"))[1] == i);
        assert((*r.advice<span<const float>>("weights"))[3] == 0.5f);
    }
}

int main() {
    echo_host *host = echo_host_start("cpp-in-place");
    {
        Runner r(echo_host_name(host));
        feature_is_shared_memory(r);
        steady_requests_allocate_nothing(r);
        bound_memory_stays(echo_host_name(host));
    }
    echo_host_stop(host);
}
