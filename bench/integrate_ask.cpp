// integrate_ask.c in C++.
#include <array>
#include <cstdio>
#ifdef ASK
#include <shmbridge.hpp>
static shmbridge::Runner runner(nullptr);
#endif

static bool should_inline(const std::array<float, 16> &features) {
#ifdef ASK
    runner.populate({{"features", features}});
    if (auto advice = runner.evaluate<int64_t>()) return *advice;
#endif
    return features[0] < 5;
}

int main() {
    std::array<float, 16> features{};
    for (int i = 0; i < 8; i++) {
        features[i] = float(i);
        std::printf("%d", should_inline(features));
    }
}
