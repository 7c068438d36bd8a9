/* A toy compiler's phase ordering as an environment: it asks for the next pass, until
 * "stop". python/trainer.py trains an agent over shm://. The model then runs from a file in this
 * process; only the URL changes.
 *
 *     c++ -std=c++17 -O2 environment.cpp $(shmbridge config --cflags --libs) -o environment
 *     python ../python/trainer.py shm://passes policy.onnx & ./environment shm://passes 800
 *     ./environment onnx://policy.onnx 8 */
#include <iostream>

#include <shmbridge_rl.hpp>

enum Pass { INLINE, FOLD, REMOVE_DEAD, STOP };
constexpr const char *names[] = {"inline", "fold", "remove-dead", "stop"};

/* The parts of a program that passes affect. */
struct Program {
    int instructions;
    bool calls, constants, dead;

    void run(int64_t pass) {
        if (pass == INLINE && calls) instructions += 4, constants = true, calls = false;
        if (pass == FOLD && constants) dead = true, constants = false;
        if (pass == REMOVE_DEAD && dead) instructions -= 8, dead = false;
    }
};

class PassOrder : public shmbridge::Environment {
public:
    Program program = {};
    std::string passes;

    void reset() override {
        passes.clear();
        observe();
    }
    void step(const shmbridge::Action &action) override {
        int before = program.instructions;
        program.run(action.index);
        passes += passes.empty() ? "" : " ";
        passes += action.index >= INLINE && action.index < STOP ? names[action.index] : names[STOP];
        if (action.index < INLINE || action.index >= STOP) return set_done();
        add_reward(before - program.instructions - 0.5); /* a pass takes time */
        observe();
    }
    bool on_error(const shmbridge::result<> &error, shmbridge::Action &action) override {
        if (!warned_) std::cerr << "warning: the heuristic decides: " << error.message() << '\n';
        warned_ = true;
        action.index = program.dead ? REMOVE_DEAD : STOP;
        return true;
    }

private:
    /* "state": float32[8], 1 at the number whose bits say whether there are calls, constants and
     * dead instructions. */
    void observe() {
        shmbridge::span<float> state = next_agent().feature<float>("state", {8});
        for (float &x : state) x = 0;
        if (!state.empty()) state[program.calls + 2 * program.constants + 4 * program.dead] = 1;
    }
    bool warned_ = false;
};

int main(int argc, char **argv) {
    shmbridge::Runner runner(argc > 1 ? argv[1] : nullptr); // nullptr: $SHMBRIDGE_URL
    uint64_t programs = argc > 2 ? std::stoull(argv[2]) : 8;
    bool samples = argc > 3; // draws actions with this seed
    shmbridge::Agent agent(runner, "", samples ? SHMB_SAMPLE_LOGITS : SHMB_ARGMAX,
                           samples ? std::stoull(argv[3]) : 0);
    PassOrder order;
    for (uint64_t i = 0; i < programs; i++) {
        order.program = {40, (i & 1) != 0, (i & 2) != 0, (i & 4) != 0};
        if (auto episode = shmbridge::drive(order, {&agent}, 20); !episode)
            return std::cerr << episode.message() << '\n', 1;
        std::cout << i << ": " << order.passes << " (" << order.program.instructions
                  << " instructions, reward " << agent.reward() << ")\n";
    }
}
