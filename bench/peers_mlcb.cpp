// A compiler with ML-Compiler-Bridge's own pipe runner, for peers.py; see peers_ask.c.
//     peers_mlcb PATH BYTES SECONDS
#include "MLModelRunner/PipeModelRunner.h"

#include <chrono>
#include <unistd.h>

static int64_t now_ns() {
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    std::string path = argv[1];
    MLBridge::PipeModelRunner runner(path + ".out", path + ".in",
                                     MLBridge::BaseSerDes::Kind::Bitstream);
    std::pair<std::string, std::vector<float>> features("x", {});
    features.second.assign(std::stoul(argv[2]) / sizeof(float), 0.2f);
    auto ask = [&] {
        runner.populateFeatures(features);
        return runner.evaluate<long>();
    };
    for (int i = 0; i < 50; i++) ask();
    if (write(1, "r", 1) != 1) return 1;
    std::vector<int64_t> samples;
    for (char go; read(0, &go, 1) == 1;) {
        samples.assign(1, 0);
        int64_t now = now_ns(), end = now + (int64_t)(std::stod(argv[3]) * 1e9);
        for (int64_t before = now; now < end; before = now) {
            ask();
            samples.push_back((now = now_ns()) - before);
        }
        samples[0] = (int64_t)samples.size() - 1;
        fwrite(samples.data(), sizeof samples[0], samples.size(), stdout);
        fflush(stdout);
    }
}
