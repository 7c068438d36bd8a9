// Asks x = 0, 1, 2 for an int64 and prints the status of opening and then, for each, the advice or
// the status, and how many were defaulted. Usage: c|c++ URL RETRIES BACKOFF DEFAULT ("-": none)
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "shmbridge.hpp"

static void print(shmb_status status, long long advice) {
    if (status == SHMB_OK) std::printf(" %lld", advice);
    else std::printf(" E%d", static_cast<int>(status));
}

int main(int argc, char **argv) {
    if (argc != 6) return 2;
    const char *url = argv[2], *advice = std::strcmp(argv[5], "-") == 0 ? nullptr : argv[5];
    int retries = std::atoi(argv[3]);
    double backoff = std::atof(argv[4]);
    if (std::strcmp(argv[1], "c") == 0) {
        shmb_options o = {};
        o.size = sizeof o;
        o.retries = retries;
        o.backoff = backoff;
        o.default_advice = advice;
        shmb_runner *r;
        std::printf("%d", static_cast<int>(shmb_open(url, &o, &r)));
        for (int64_t x = 0; x < 3; x++) {
            int64_t found = 0;
            shmb_set_i64(r, "x", x);
            shmb_status status = shmb_evaluate_i64(r, &found);
            print(status, found);
        }
        shmb_stats stats = {};
        stats.size = sizeof stats;
        shmb_runner_stats(r, &stats);
        std::printf(" %lld\n", static_cast<long long>(stats.defaulted));
        shmb_close(r);
        return 0;
    }
    shmbridge::options with;
    with.retries = retries;
    with.backoff = backoff;
    with.default_advice = advice;
    shmbridge::Runner r(url, with);
    std::printf("%d", static_cast<int>(r.status()));
    for (int64_t x = 0; x < 3; x++) {
        r.populate({{"x", x}});
        auto found = r.evaluate<int64_t>();
        print(found.status(), found ? *found : 0);
    }
    std::printf(" %lld\n", static_cast<long long>(r.defaulted()));
}
