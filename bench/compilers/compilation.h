/* What the programs of compilation.py have in common. */
#ifndef COMPILATION_H
#define COMPILATION_H

#include <stddef.h>
#include <stdint.h>

enum { FEATURES = 38 };

/* LLVM's features for the inliner, in its order; each is int64[1]. */
static const char *const feature_names[FEATURES] = {
    "sroa_savings",
    "sroa_losses",
    "load_elimination",
    "call_penalty",
    "call_argument_setup",
    "load_relative_intrinsic",
    "lowered_call_arg_setup",
    "indirect_call_penalty",
    "jump_table_penalty",
    "case_cluster_penalty",
    "switch_default_dest_penalty",
    "switch_penalty",
    "unsimplified_common_instructions",
    "num_loops",
    "dead_blocks",
    "simplified_instructions",
    "constant_args",
    "constant_offset_ptr_args",
    "callsite_cost",
    "cold_cc_penalty",
    "last_call_to_static_bonus",
    "is_multiple_blocks",
    "nested_inlines",
    "nested_inline_cost_estimate",
    "threshold",
    "callee_basic_block_count",
    "callsite_height",
    "node_count",
    "nr_ctant_params",
    "cost_estimate",
    "edge_count",
    "caller_users",
    "caller_conditionally_executed_blocks",
    "caller_basic_block_count",
    "callee_conditionally_executed_blocks",
    "callee_users",
    "is_callee_avail_external",
    "is_caller_avail_external",
};

/* examples/llvm/inliner/policy.py, in its order of operations. */
static inline int64_t advise(const int64_t *features) {
    double cost = 0;
    cost += 1.0 * (double)features[29];
    cost += 2.0 * (double)features[25];
    cost += -0.05 * (double)features[32];
    cost += -5.0 * (double)features[28];
    cost += -0.2 * (double)features[0];
    return cost + 10.0 < 0;
}

#ifdef __cplusplus
extern "C" {
#endif

/* A way to the model: compilation_ask.c or compilation_grpc.cpp. Both exit if something fails. */
void open_model(const char *url);
int64_t ask(const int64_t *features);
/* Asks several questions at once, where the way can; the sum of the advice. */
int64_t ask_together(int64_t (*features)[FEATURES], size_t count);
void close_model(void);

#ifdef __cplusplus
}
#endif

#endif
