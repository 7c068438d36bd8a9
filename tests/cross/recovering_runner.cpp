// Asks x = 0, 1, 2 for an int64 and prints the status of opening and then, for each, the advice or
// the status, and how many were defaulted. Usage: URL RETRIES BACKOFF DEFAULT ("-": none)
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
    if (argc != 5) return 2;
    const char *url = argv[1], *advice = std::strcmp(argv[4], "-") == 0 ? nullptr : argv[4];
    int retries = std::atoi(argv[2]);
    double backoff = std::atof(argv[3]);
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
