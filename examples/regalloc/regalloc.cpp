// A register allocator for an unmodified clang-22 or llc-22 that asks a model about each live range:
//
//   clang-22 -O2 -fpass-plugin=build/shmbridge-regalloc.so -c file.c     # $SHMBRIDGE_URL: the model
//
// Agent "task" chooses to take a register, to split, or to spill; "colour" chooses the register, and
// "split" the place. Greedy, LLVM's own allocator, allocates every function whose first question gets
// no usable answer: nothing was changed until then.

#include "llvm/Analysis/OptimizationRemarkEmitter.h"
#include "llvm/Analysis/ProfileSummaryInfo.h"
#include "llvm/CodeGen/LiveStacks.h"
#include "llvm/CodeGen/MachineDominators.h"
#include "llvm/CodeGen/MachineFunctionPass.h"
#include "llvm/CodeGen/MachineOptimizationRemarkEmitter.h"
#include "llvm/CodeGen/Passes.h"
#include "llvm/CodeGen/RegAllocRegistry.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Plugins/PassPlugin.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/WithColor.h"

#include "allocation.h"

namespace {

class Allocator : public MachineFunctionPass {
public:
    static char ID;
    Allocator(shmbridge::Runner Opened, FunctionPass *Other)
        : MachineFunctionPass(ID), Runner(std::move(Opened)), Fallback(Other) {
        Fallback->getAnalysisUsage(OfFallback);
        auto &Options = cl::getRegisteredOptions();
        auto Option = Options.find("mir2vec-vocab-path");
        Embeds = Option != Options.end() && Option->second->getNumOccurrences();
    }

    ~Allocator() override {
        if (!Why.empty())
            WithColor::warning(errs(), "shmbridge")
                << LeftOut << " of " << Functions << " functions have the registers of greedy, and "
                << Own << " of " << Questions
                << " decisions in others are the plug-in's own: " << Why << '\n';
    }

    StringRef getPassName() const override { return "Register allocation by a model"; }
    MachineFunctionProperties getRequiredProperties() const override {
        return MachineFunctionProperties().setNoPHIs();
    }
    MachineFunctionProperties getClearedProperties() const override {
        return MachineFunctionProperties().setIsSSA();
    }

    void getAnalysisUsage(AnalysisUsage &AU) const override {
        Fallback->getAnalysisUsage(AU); // what an allocator needs, and keeps
        AU.addRequired<MachineOptimizationRemarkEmitterPass>();
        AU.addRequired<ProfileSummaryInfoWrapperPass>();
        if (Embeds) AU.addRequired<MIR2VecVocabLegacyAnalysis>();
    }

    bool runOnMachineFunction(MachineFunction &F) override {
        ++Functions;
        F.getRegInfo().freezeReservedRegs();
        Ranges R{F,
                 getAnalysis<LiveIntervalsWrapperPass>().getLIS(),
                 getAnalysis<LiveRegMatrixWrapperLegacy>().getLRM(),
                 getAnalysis<VirtRegMapWrapperLegacy>().getVRM(),
                 getAnalysis<MachineLoopInfoWrapperPass>().getLI(),
                 getAnalysis<MachineBlockFrequencyInfoWrapperPass>().getMBFI()};
        R.Classes.runOnMachineFunction(F);
        Counts Of;
        // Inline assembly may need registers to be moved, which only greedy does.
        bool Asked = Runner && !F.hasInlineAsm() && allocate(R, Of);
        if (!Asked) otherwise(F);
        auto &Remarks = getAnalysis<MachineOptimizationRemarkEmitterPass>().getORE();
        Remarks.emit([&] {
            MachineOptimizationRemarkAnalysis Remark("shmbridge-regalloc", "Allocated", DebugLoc(),
                                                     &F.front());
            Remark << (Asked ? "by a model: " : "by LLVM: ")
                   << ore::NV("Questions", int(Of.Questions)) << " questions, "
                   << ore::NV("Spills", int(Of.Spills)) << " spills, "
                   << ore::NV("Splits", int(Of.Splits)) << " splits, "
                   << ore::NV("Evictions", int(Of.Evictions)) << " evictions, cost "
                   << ore::NV("Cost", float(R.cost()));
            return Remark;
        });
        return true;
    }

private:
    // Asks the model. False: the first question got no usable answer, and nothing was changed.
    bool allocate(Ranges &R, Counts &Of) {
        MachineFunction &F = R.MF;
        VirtRegAuxInfo Weights(F, R.LIS, R.VRM, R.Loops, R.Frequencies,
                               &getAnalysis<ProfileSummaryInfoWrapperPass>().getPSI());
        auto &Stacks = getAnalysis<LiveStacksWrapperLegacy>().getLS();
        auto &Dominators = getAnalysis<MachineDominatorTreeWrapperPass>().getDomTree();
        std::unique_ptr<Spiller> S(createInlineSpiller({R.LIS, Stacks, Dominators, R.Frequencies},
                                                       F, R.VRM, Weights, &R.Matrix));
        std::optional<mir2vec::MIRVocabulary> Vocabulary;
        std::unique_ptr<mir2vec::MIREmbedder> Embedder;
        if (Embeds) {
            auto &Read = getAnalysis<MIR2VecVocabLegacyAnalysis>();
            if (auto Found = Read.getMIR2VecVocabulary(*F.getFunction().getParent()))
                Vocabulary.emplace(std::move(*Found));
            else Why = toString(Found.takeError());
            if (Vocabulary)
                Embedder = mir2vec::MIREmbedder::create(MIR2VecKind::Symbolic, F, *Vocabulary);
        }
        Allocation Episode(R, Weights, *S, getAnalysis<LiveDebugVariablesWrapperLegacy>().getLDV(),
                           Embedder.get());
        auto Driven = shmbridge::drive(Episode, {&TaskAgent, &ColourAgent, &SplitAgent});
        if (!Driven && Why.empty()) Why = Driven.message();
        if (!Episode.changed()) {
            LeftOut += !Driven;
            return false;
        }
        Episode.finish();
        Of = Episode.counts();
        Questions += Of.Questions;
        Own += Of.Own;
        if (Why.empty()) Why = Episode.why();
        return true;
    }

    // LLVM's allocator finds its analyses among ours.
    void otherwise(MachineFunction &F) {
        if (!Fallback->getResolver())
            Fallback->setResolver(new AnalysisResolver(getResolver()->getPMDataManager()));
        Fallback->getResolver()->clearAnalysisImpls();
        for (AnalysisID Needed : OfFallback.getRequiredSet())
            Fallback->getResolver()->addAnalysisImplsPair(Needed,
                                                          getResolver()->findImplPass(Needed));
        Fallback->runOnFunction(F.getFunction());
    }

    shmbridge::Runner Runner;
    std::unique_ptr<FunctionPass> Fallback;
    AnalysisUsage OfFallback;
    shmbridge::Agent TaskAgent{Runner, "task"}, ColourAgent{Runner, "colour"},
        SplitAgent{Runner, "split"};
    bool Embeds = false;
    uint64_t Functions = 0, LeftOut = 0, Questions = 0, Own = 0;
    std::string Why;
};

char Allocator::ID = 0;

FunctionPass *create() {
    shmbridge::Runner Runner(nullptr);                    // $SHMBRIDGE_URL
    const char *Other = getenv("REGALLOC_WITHOUT_MODEL"); // to compare with LLVM's basic allocator
    bool Basic = Other && StringRef(Other) == "basic";
    if (!Runner && !Basic)
        WithColor::warning(errs(), "shmbridge")
            << "greedy allocates the registers: " << Runner.message() << '\n';
    return new Allocator(std::move(Runner),
                         Basic ? createBasicRegisterAllocator() : createGreedyRegisterAllocator());
}

RegisterRegAlloc Registered("shmbridge", "asks a model by shmbridge", create);

} // namespace

// The default from -O1 on; at -O0 LLVM's fast allocator stays.
extern "C" LLVM_ATTRIBUTE_WEAK PassPluginLibraryInfo llvmGetPassPluginInfo() {
    return {LLVM_PLUGIN_API_VERSION, "shmbridge-regalloc", LLVM_VERSION_STRING,
            [](PassBuilder &PB) {
                auto Take = [](ModulePassManager &, OptimizationLevel Level, ThinOrFullLTOPhase) {
                    if (Level != OptimizationLevel::O0) RegisterRegAlloc::setDefault(create);
                };
                PB.registerOptimizerLastEPCallback(Take); // also of a ThinLTO link
                PB.registerFullLinkTimeOptimizationLastEPCallback(
                    [=](ModulePassManager &PM, OptimizationLevel Level) {
                        Take(PM, Level, ThinOrFullLTOPhase::FullLTOPostLink);
                    });
            }};
}
