// runner.c as a pass of stock mlir-opt 22: the same questions, from the process of an MLIR compiler.
//     mlir-opt-22 --load-pass-plugin=mlir_runner.so --pass-pipeline='builtin.module(ask{bridge=NAME core=1})' empty.mlir
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Tools/Plugins/PassPlugin.h"

extern "C" int runner_main(int argc, char **argv); // of runner.c

using namespace mlir;

namespace {

struct Ask : PassWrapper<Ask, OperationPass<ModuleOp>> {
    MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(Ask)
    Ask() = default;
    Ask(const Ask &other) : PassWrapper(other) {}
    Option<std::string> bridge{*this, "bridge", llvm::cl::desc("The host's name")};
    Option<std::string> core{*this, "core", llvm::cl::desc("The CPU to run on")};

    StringRef getArgument() const override { return "ask"; }

    void runOnOperation() override {
        std::string words[] = {"runner", bridge, "adaptive", core};
        char *argv[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data()};
        if (runner_main(4, argv)) signalPassFailure();
    }
};

} // namespace

extern "C" __attribute__((visibility("default"))) PassPluginLibraryInfo mlirGetPassPluginInfo() {
    return {MLIR_PLUGIN_API_VERSION, "ask", "1", [] { PassRegistration<Ask>(); }};
}
