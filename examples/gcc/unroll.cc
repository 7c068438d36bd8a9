// A plug-in for stock gcc 12: a model decides how often each innermost loop is unrolled.
//
// It asks $SHMBRIDGE_URL once for each innermost loop, after gcc's passes for loops. The advice is
// an index into FACTORS. gcc's unroller follows it like #pragma GCC unroll. Without a model gcc
// decides, and one note counts these loops.

// clang-format off: gcc's headers need this order
#include "gcc-plugin.h"
#include "tree.h"
#include "gimple.h"
#include "gimple-iterator.h"
#include "basic-block.h"
#include "cfgloop.h"
#include "context.h"
#include "diagnostic-core.h"
#include "plugin-version.h"
#include "tree-pass.h"
#include "tree-scalar-evolution.h"
#include "tree-ssa-loop-niter.h"
// clang-format on

#include <cmath>

#include "shmbridge.h"

int plugin_is_GPL_compatible;

namespace {

constexpr int64_t FACTORS[] = {0, 1, 2, 4, 8}; // 0: gcc decides; 1: not unrolled
constexpr int64_t CHOICES = sizeof FACTORS / sizeof *FACTORS;

// The observation: float32[FEATURES]. Counts are log2(1 + count).
enum Feature {
    STATEMENTS,
    BLOCKS,
    MEMORY, // statements that read or write memory
    CALLS,
    FLOATS,  // statements whose result is a floating-point number or a vector of these
    VECTORS, // statements whose result is a vector
    EXITS,
    DEPTH,      // loops around it
    COUNTED,    // 1: the number of iterations is known before the loop
    CONSTANT,   // 1: it is known at compile time
    ITERATIONS, // how often, or at most; 0: unknown
    FEATURES
};

const pass_data info = {
    GIMPLE_PASS, "shmbridge_unroll", OPTGROUP_LOOP, TV_NONE, PROP_cfg | PROP_loops, 0, 0, 0, 0};

class Unroll : public gimple_opt_pass {
public:
    explicit Unroll(gcc::context *context) : gimple_opt_pass(info, context) {}

    unsigned execute(function *body) override {
        for (auto loop : loops_list(body, LI_ONLY_INNERMOST))
            if (!loop->unroll) ask(body, loop); // a pragma has already set it
        return 0;
    }

    void close() {
        if (failed)
            inform(UNKNOWN_LOCATION, "shmbridge: gcc itself decides about %d of %d loops: %s",
                   failed, asked, why);
        shmb_close(runner);
        free(why);
    }

private:
    shmb_runner *runner = nullptr;
    int asked = 0, failed = 0;
    char *why = nullptr;

    void open() {
        shmb_options options = {};
        options.size = sizeof options;
        options.label = main_input_filename;
        options.log = [](void *, const char *) {}; // close() counts failures
        shmb_open(nullptr, &options, &runner);     // on failure evaluate reports it
    }

    void ask(function *body, class loop *loop) {
        if (!asked++) open();
        float *x = shmb_feature_f32(runner, "features", FEATURES);
        if (x) observe(loop, x);
        int64_t advice = 0;
        shmb_status status = shmb_evaluate_i64(runner, &advice);
        if (status != SHMB_OK || advice < 0 || advice >= CHOICES) {
            if (!failed++)
                why = xstrdup(status != SHMB_OK ? shmb_error_message(runner)
                                                : "expected advice from 0 to 4");
        } else if (FACTORS[advice]) {
            loop->unroll = FACTORS[advice];
            body->has_unroll = true;
        }
    }

    static void observe(class loop *loop, float *x) {
        for (int i = 0; i < FEATURES; i++) x[i] = 0;
        basic_block *blocks = get_loop_body(loop);
        for (unsigned b = 0; b < loop->num_nodes; b++)
            for (gimple_stmt_iterator i = gsi_start_bb(blocks[b]); !gsi_end_p(i); gsi_next(&i))
                count(gsi_stmt(i), x);
        free(blocks);
        x[BLOCKS] = loop->num_nodes;
        x[EXITS] = get_loop_exit_edges(loop).length();
        x[DEPTH] = loop_depth(loop) - 1;
        tree niter = number_of_latch_executions(loop);
        x[COUNTED] = niter && niter != chrec_dont_know;
        x[CONSTANT] = niter && TREE_CODE(niter) == INTEGER_CST;
        HOST_WIDE_INT most = get_max_loop_iterations_int(loop);
        x[ITERATIONS] = most < 0 ? 0 : most;
        for (int i = 0; i < FEATURES; i++) x[i] = log2f(1 + x[i]);
    }

    static void count(gimple *statement, float *x) {
        if (is_gimple_debug(statement)) return;
        tree result = gimple_get_lhs(statement);
        x[STATEMENTS]++;
        x[CALLS] += is_gimple_call(statement);
        x[MEMORY] += gimple_vuse(statement) != NULL_TREE;
        x[FLOATS] += result && FLOAT_TYPE_P(TREE_TYPE(result));
        x[VECTORS] += result && VECTOR_TYPE_P(TREE_TYPE(result));
    }
};

Unroll *pass;

void finish(void *, void *) { pass->close(); }

} // namespace

int plugin_init(plugin_name_args *plugin, plugin_gcc_version *version) {
    if (!plugin_default_version_check(version, &gcc_version)) {
        error("%s was built for gcc %s: build it with the g++ of this gcc, %s", plugin->base_name,
              gcc_version.basever, version->basever);
        return 1;
    }
    pass = new Unroll(g);
    register_pass_info where = {pass, "ivopts", 1, PASS_POS_INSERT_AFTER};
    register_callback(plugin->base_name, PLUGIN_PASS_MANAGER_SETUP, nullptr, &where);
    register_callback(plugin->base_name, PLUGIN_FINISH, finish, nullptr);
    return 0;
}
