// An unmodified clang or opt asks a model in another process for inlining decisions.
//
// LLVM's own MLInlineAdvisor computes the features and writes them through pointers from a model
// runner. Here they point into shared memory, so asking copies nothing. After any failure
// compilation continues: call sites without an answer use the advice of LLVM's default inliner, and one warning
// counts them.

#include "llvm/Analysis/InlineModelFeatureMaps.h"
#include "llvm/Analysis/MLInlineAdvisor.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/WithColor.h"
#if LLVM_VERSION_MAJOR >= 22
#include "llvm/Plugins/PassPlugin.h"
#else
#include "llvm/Passes/PassPlugin.h"
#endif

#include <cstdlib>

#include "shmbridge.h"

using namespace llvm;

namespace {

// The model, as LLVM sees it. Its tensors are bound: LLVM writes each feature where the host reads it.
class BridgeRunner final : public MLModelRunner {
public:
    // The current call site, and the default inliner's advice for it.
    CallBase *Site = nullptr;

    BridgeRunner(LLVMContext &Ctx, const std::vector<TensorSpec> &Specs, InlineAdvisor &Default)
        : MLModelRunner(Ctx, Kind::Interactive, Specs.size()), Default(Default) {
        open();
        for (size_t I = 0; I < Specs.size(); ++I) {
            const TensorSpec &Spec = Specs[I];
            shmb_dtype Type = Spec.isElementType<int64_t>()
                                  ? SHMB_INT64
                                  : SHMB_FLOAT32; // the inliner has no others
            void *Tensor = shmb_bind(Bridge, Spec.name().c_str(), Type, Spec.shape().size(),
                                     Spec.shape().data());
            setUpBufferForTensor(I, Spec, Tensor);
        }
    }

    ~BridgeRunner() override {
        if (Defaulted)
            WithColor::warning(errs(), "shmbridge")
                << Defaulted << " of " << Answered + Defaulted
                << " call sites took LLVM's default advice: " << Why << '\n';
        shmb_close(Bridge);
    }

    // Can a host still answer the next request?
    bool live() const { return Live; }

    std::unique_ptr<InlineAdvice> defaultAdvice(CallBase &CB) {
        ++Defaulted;
        return Default.getAdvice(CB);
    }

private:
    // Opens $SHMBRIDGE_URL, or shm://inliner. Does not wait for an absent host, unless the URL has "?connect_timeout=".
    void open() {
        shmb_options Options = {};
        Options.size = sizeof Options;
        Options.log = [](void *, const char *) {}; // the warning at the end counts failures
        const char *Url = std::getenv("SHMBRIDGE_URL") ? nullptr : "shm://inliner";
        shmb_status Status = shmb_open(Url, &Options, &Bridge);
        if (Status != SHMB_OK) fail();
    }

    // No further questions in this module. LLVM limits how much a module grows by a model's advice, and counts what the
    // default inliner adds at sites without advice: with a model that always fails, the object would not be plain.
    void fail() {
        Why = shmb_error_message(Bridge);
        Live = false;
    }

    void *evaluateUntyped() override {
        if (shmb_evaluate_i64(Bridge, &Advice) == SHMB_OK) {
            ++Answered;
        } else {
            fail();
            std::unique_ptr<InlineAdvice> Instead = defaultAdvice(*Site);
            Advice = Instead->isInliningRecommended();
            Instead->recordUnattemptedInlining(); // only its opinion was needed
        }
        return &Advice;
    }

    InlineAdvisor &Default;
    shmb_runner *Bridge = nullptr;
    bool Live = true;
    int64_t Advice = 0;
    uint64_t Answered = 0;
    uint64_t Defaulted = 0;
    std::string Why;
};

// A base class, so that the default inliner outlives the advisor whose runner refers to it.
struct Fallback {
    DefaultInlineAdvisor Default;
};

#if LLVM_VERSION_MAJOR >= 22
auto makeRunner(Module &M, InlineAdvisor &Default) {
    return [&](const std::vector<TensorSpec> &Specs) {
        return std::make_unique<BridgeRunner>(M.getContext(), Specs, Default);
    };
}
#else
auto makeRunner(Module &M, InlineAdvisor &Default) {
    return std::make_unique<BridgeRunner>(M.getContext(), FeatureMap, Default);
}
#endif

// After a failure every question goes to the default inliner. MLInlineAdvisor's own bookkeeping stops with it,
// for it would count functions that it did not see inlined.
class BridgeAdvisor final : Fallback, public MLInlineAdvisor {
public:
    BridgeAdvisor(Module &M, ModuleAnalysisManager &MAM, FunctionAnalysisManager &FAM,
                  InlineParams Params, InlineContext IC)
        : Fallback{{M, FAM, Params, IC}},
          MLInlineAdvisor(M, MAM, makeRunner(M, Default), [](CallBase &) { return false; }) {}

private:
    BridgeRunner &runner() { return static_cast<BridgeRunner &>(*ModelRunner); }

    std::unique_ptr<InlineAdvice> getAdviceImpl(CallBase &CB) override {
        return runner().live() ? MLInlineAdvisor::getAdviceImpl(CB) : runner().defaultAdvice(CB);
    }
    std::unique_ptr<MLInlineAdvice> getAdviceFromModel(CallBase &CB,
                                                       OptimizationRemarkEmitter &ORE) override {
        runner().Site = &CB;
        return MLInlineAdvisor::getAdviceFromModel(CB, ORE);
    }
    std::unique_ptr<InlineAdvice> getMandatoryAdvice(CallBase &CB, bool Advice) override {
        return runner().live() ? MLInlineAdvisor::getMandatoryAdvice(CB, Advice)
                               : InlineAdvisor::getMandatoryAdvice(CB, Advice);
    }
    void onPassEntry(LazyCallGraph::SCC *SCC) override {
        if (runner().live()) MLInlineAdvisor::onPassEntry(SCC);
    }
    void onPassExit(LazyCallGraph::SCC *SCC) override {
        if (runner().live()) MLInlineAdvisor::onPassExit(SCC);
    }
};

// The factory is a plain function without access to module analyses; each thread compiles one module at once.
thread_local ModuleAnalysisManager *ModuleAnalyses;

InlineAdvisor *makeAdvisor(Module &M, FunctionAnalysisManager &FAM, InlineParams Params,
                           InlineContext IC) {
    return new BridgeAdvisor(M, *ModuleAnalyses, FAM, Params, IC);
}

void registerAdvisor(PassBuilder &PB) {
    PB.registerAnalysisRegistrationCallback([](ModuleAnalysisManager &MAM) {
        ModuleAnalyses = &MAM;
        MAM.registerPass([] { return PluginInlineAdvisorAnalysis(makeAdvisor); });
    });
}

} // namespace

extern "C" LLVM_ATTRIBUTE_WEAK __attribute__((visibility("default"))) PassPluginLibraryInfo
llvmGetPassPluginInfo() {
    return {LLVM_PLUGIN_API_VERSION, "shmbridge-inliner", LLVM_VERSION_STRING, registerAdvisor};
}
