// A pass of mlir-opt that is runner.c: it asks $SWEEP_URL from the core $SWEEP_CORE.
#include "mlir/Pass/Pass.h"
#include "mlir/Tools/Plugins/PassPlugin.h"

#include <cstdlib>

using namespace mlir;

extern "C" int runner(int argc, char **argv); // runner.c's main

namespace {

struct Sweep : PassWrapper<Sweep, OperationPass<>> {
    MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(Sweep)
    StringRef getArgument() const override { return "sweep"; }
    void runOnOperation() override {
        char name[] = "runner", wait[] = "adaptive";
        char *arguments[] = {name, getenv("SWEEP_URL"), wait, getenv("SWEEP_CORE")};
        if (runner(4, arguments)) signalPassFailure();
    }
};

} // namespace

extern "C" __attribute__((visibility("default"))) PassPluginLibraryInfo mlirGetPassPluginInfo() {
    return {MLIR_PLUGIN_API_VERSION, "sweep", "1", [] { PassRegistration<Sweep>(); }};
}
