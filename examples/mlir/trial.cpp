#include "trial.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/ExecutionEngine/CRunnerUtils.h"
#include "mlir/ExecutionEngine/ExecutionEngine.h"
#include "mlir/ExecutionEngine/OptUtils.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/ExecutionEngine/Orc/JITTargetMachineBuilder.h"
#include "llvm/Target/TargetMachine.h"

#include <cmath>
#include <ctime>
#include <vector>

using namespace mlir;

namespace {

constexpr int CALLS = 5;         // at least
constexpr double SECONDS = 0.02; // at least, of all calls

// From loops over tiles to LLVM's dialect.
constexpr char LOWERING[] =
    "convert-linalg-to-loops,canonicalize,convert-scf-to-cf,expand-strided-metadata,lower-affine,"
    "finalize-memref-to-llvm,convert-cf-to-llvm,convert-func-to-llvm,convert-arith-to-llvm,"
    "reconcile-unrealized-casts";

double cpu() { // of this thread: other programs do not count
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

struct Matrix {
    std::vector<float> values;
    StridedMemRefType<float, 2> view;

    Matrix(int64_t rows, int64_t columns, unsigned factor) : values(rows * columns) {
        for (size_t i = 0; i < values.size(); i++)
            values[i] = float(i * factor % 7) - 3; // products are exact
        view = {values.data(), values.data(), 0, {rows, columns}, {columns, 1}};
    }
};

// Is c the product of a and b? Checks one column of every row.
bool isProduct(const Matrix &a, const Matrix &b, const Matrix &c) {
    int64_t m = a.view.sizes[0], k = a.view.sizes[1], n = b.view.sizes[1];
    for (int64_t i = 0; i < m; i++) {
        int64_t j = i * 5 % n;
        float sum = 0;
        for (int64_t p = 0; p < k; p++) sum += a.values[i * k + p] * b.values[p * n + j];
        if (c.values[i * n + j] != sum) return false;
    }
    return true;
}

} // namespace

FailureOr<double> secondsOf(ModuleOp module, StringRef name, Shape shape) {
    module.walk([](func::FuncOp function) {
        function->setAttr(LLVM::LLVMDialect::getEmitCWrapperAttrName(),
                          UnitAttr::get(function.getContext()));
    });
    PassManager passes(module->getName());
    if (failed(parsePassPipeline(LOWERING, passes)) || failed(passes.run(module))) return failure();
    auto host = llvm::orc::JITTargetMachineBuilder::detectHost();
    if (!host) return module.emitError(toString(host.takeError()));
    auto machine = host->createTargetMachine();
    if (!machine) return module.emitError(toString(machine.takeError()));
    ExecutionEngineOptions options;
    auto optimize = makeOptimizingTransformer(3, 0, machine->get());
    options.transformer = optimize;
    options.jitCodeGenOptLevel = llvm::CodeGenOptLevel::Aggressive;
    auto engine = ExecutionEngine::create(module, options, std::move(*machine));
    if (!engine) return module.emitError(toString(engine.takeError()));

    Matrix a(shape.m, shape.k, 3), b(shape.k, shape.n, 5), c(shape.m, shape.n, 0);
    void *views[] = {&a.view, &b.view, &c.view};
    double shortest = INFINITY, all = 0;
    for (int call = 0; call < CALLS || all < SECONDS; call++) {
        std::fill(c.values.begin(), c.values.end(), 0.0f);
        void *arguments[] = {&views[0], &views[1], &views[2]};
        double start = cpu();
        if (auto error = (*engine)->invokePacked(("_mlir_ciface_" + name).str(), arguments))
            return module.emitError(toString(std::move(error)));
        double seconds = cpu() - start;
        shortest = std::min(shortest, seconds), all += seconds;
    }
    if (!isProduct(a, b, c))
        return module.emitError("expected the product of two matrices, found other numbers");
    return shortest;
}
