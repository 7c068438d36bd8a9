// A pass for stock mlir-opt 22: a model chooses the tile sizes of each linalg.matmul.
//
// It asks $SHMBRIDGE_URL about each function of a matmul of three memrefs of known sizes. The observation, "shape", is
// log2 of M, N and K; the action is one of 64 choices of three tile sizes. Without a model functions stay unchanged.
//
// With trials=N it asks about each function N times, in turns, without changing it: a copy is tiled, compiled and run in
// this process, and the reward is log2(seconds untiled / seconds tiled).

#include "trial.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/Transforms/TileUsingInterface.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Tools/Plugins/PassPlugin.h"
#include "llvm/Support/TargetSelect.h"

#include "shmbridge_rl.hpp"

#include <cmath>
#include <memory>
#include <vector>

using namespace mlir;

namespace {

constexpr int64_t SIZES[] = {0, 8, 32, 128}; // of a tile in one dimension; 0: not tiled
constexpr int64_t CHOICES = 4 * 4 * 4;       // the first digit, in base 4, is M's

// The matmul as loops over m, k and n, the last of which runs along rows; around them loops over tiles, in the same order.
LogicalResult tile(linalg::MatmulOp matmul, int64_t choice) {
    IRRewriter rewriter(matmul.getContext());
    rewriter.setInsertionPoint(matmul);
    auto generic = linalg::generalizeNamedOp(rewriter, matmul);
    if (succeeded(generic)) generic = linalg::interchangeGenericOp(rewriter, *generic, {0, 2, 1});
    if (failed(generic)) return failure();
    if (choice == 0) return success();
    int64_t sizes[] = {SIZES[choice / 16], SIZES[choice % 4], SIZES[choice / 4 % 4]}; // of m, k, n
    scf::SCFTilingOptions options;
    options.setTileSizes(getAsIndexOpFoldResult(matmul.getContext(), sizes));
    rewriter.setInsertionPoint(*generic);
    if (failed(
            scf::tileUsingSCF(rewriter, cast<TilingInterface>(generic->getOperation()), options)))
        return failure();
    rewriter.eraseOp(*generic); // the tiles wrote to the same memory
    return success();
}

// An episode is one matmul and one choice.
class Tiling : public shmbridge::Environment {
public:
    Tiling(func::FuncOp function, linalg::MatmulOp matmul, bool tries)
        : function(function), matmul(matmul), tries(tries) {
        auto a = cast<MemRefType>(matmul.getInputs()[0].getType());
        auto c = cast<MemRefType>(matmul.getOutputs()[0].getType());
        shape = {c.getDimSize(0), c.getDimSize(1), a.getDimSize(1)};
    }

    void reset() override {
        shmbridge::span<float> x = next_agent().feature<float>("shape", {3});
        if (x.size() == 3)
            x[0] = std::log2(shape.m), x[1] = std::log2(shape.n), x[2] = std::log2(shape.k);
    }

    void step(const shmbridge::Action &action) override {
        if (action.index < 0 || action.index >= CHOICES) return stop(SHMB_MISMATCH);
        set_done();
        if (!tries) return (void)(broken = failed(tile(matmul, action.index)));
        if (before == 0) before = seconds(0);
        double after = seconds(action.index);
        if (broken) return stop(SHMB_SYSTEM);
        add_reward(std::log2(before / after));
    }

    bool broken = false; // MLIR has printed the reason

private:
    double seconds(int64_t choice) {
        OwningOpRef<ModuleOp> copy = ModuleOp::create(function.getLoc());
        auto cloned = function.clone();
        copy->push_back(cloned);
        bool tiled = true;
        cloned.walk([&](linalg::MatmulOp op) { tiled = succeeded(tile(op, choice)); });
        FailureOr<double> found = failure();
        if (tiled) found = secondsOf(*copy, function.getName(), shape);
        broken |= failed(found);
        return broken ? 1 : *found;
    }

    func::FuncOp function;
    linalg::MatmulOp matmul;
    bool tries;
    Shape shape;
    double before = 0;
};

struct TilePass : PassWrapper<TilePass, OperationPass<ModuleOp>> {
    MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(TilePass)
    TilePass() = default;
    TilePass(const TilePass &other) : PassWrapper(other) {}
    Option<int> trials{*this, "trials", llvm::cl::desc("Choices to try of each matmul")};

    StringRef getArgument() const override { return "shmbridge-tile"; }
    StringRef getDescription() const override {
        return "A model chooses the tile sizes of matmuls";
    }
    void getDependentDialects(DialectRegistry &registry) const override {
        registry.insert<affine::AffineDialect, arith::ArithDialect, cf::ControlFlowDialect,
                        LLVM::LLVMDialect, memref::MemRefDialect, scf::SCFDialect>();
        registerBuiltinDialectTranslation(registry); // for the trials
        registerLLVMDialectTranslation(registry);
    }

    void runOnOperation() override {
        shmbridge::Runner runner(nullptr);
        shmbridge::Agent agent(runner);
        std::vector<std::unique_ptr<Tiling>> matmuls;
        getOperation().walk([&](linalg::MatmulOp op) {
            auto function = op->getParentOfType<func::FuncOp>();
            bool known = llvm::all_of(op->getOperandTypes(), [](Type type) {
                auto memref = dyn_cast<MemRefType>(type);
                return memref && memref.hasStaticShape() && memref.getElementType().isF32();
            });
            // A trial calls the function: its arguments must be those of the matmul.
            bool alone = function && llvm::equal(op->getOperands(), function.getArguments());
            if (function && known && (alone || !trials))
                matmuls.push_back(std::make_unique<Tiling>(function, op, trials > 0));
        });
        for (int trial = 0; trial < std::max<int>(trials, 1); trial++)
            for (auto &tiling : matmuls) {
                auto episode = shmbridge::drive(*tiling, {&agent});
                if (tiling->broken) return signalPassFailure();
                if (!episode)
                    return (void)(getOperation().emitRemark("shmbridge: matmuls stay as they are: ")
                                  << episode.message());
            }
    }
};

} // namespace

extern "C" __attribute__((visibility("default"))) PassPluginLibraryInfo mlirGetPassPluginInfo() {
    return {MLIR_PLUGIN_API_VERSION, "shmbridge-tile", "1", [] {
                llvm::InitializeNativeTarget();
                llvm::InitializeNativeTargetAsmPrinter();
                PassRegistration<TilePass>();
            }};
}
