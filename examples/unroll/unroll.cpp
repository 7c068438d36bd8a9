// An unroll count for each innermost loop of a function, for an unmodified clang-22 or opt-22.
//
// The pass first sends the questions about all loops, then receives the answers. So the model
// answers the first while the pass computes the features of the next, and sees them as one batch.

#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/Support/WithColor.h"
#include "llvm/Transforms/Utils/LoopUtils.h"

#include "../llvm/loop_pass.h"
#include "shmbridge.hpp"

using namespace llvm;

namespace {

class Advisor {
public:
    void advise(Function &F, FunctionAnalysisManager &FAM) {
        auto &Evolution = FAM.getResult<ScalarEvolutionAnalysis>(F);
        std::vector<std::pair<Loop *, shmbridge::ticket<int64_t>>> Sent;
        for (Loop *L : FAM.getResult<LoopAnalysis>(F).getLoopsInPreorder())
            if (L->isInnermost()) Sent.emplace_back(L, ask(*L, Evolution));
        for (auto &[L, Ticket] : Sent) {
            auto Count = Runner.receive(Ticket);
            if (Count && *Count > 1 && *Count <= 64)
                addStringMetadataToLoop(L, "llvm.loop.unroll.count", unsigned(*Count));
            if (!Count && Unanswered++ == 0) Why = Count.message();
        }
    }
    ~Advisor() {
        if (Unanswered)
            WithColor::warning(errs(), "shmbridge")
                << Unanswered << " loops are unrolled as LLVM decides: " << Why << '\n';
    }

private:
    shmbridge::ticket<int64_t> ask(const Loop &L, ScalarEvolution &Evolution) {
        int64_t Instructions = 0, Memory = 0, Calls = 0;
        for (const BasicBlock *Block : L.blocks())
            for (const Instruction &I : *Block) {
                Instructions++;
                Memory += I.mayReadOrWriteMemory();
                Calls += isa<CallBase>(I);
            }
        int64_t Trips = Evolution.getSmallConstantTripCount(&L); // 0: not known
        Runner.populate({{"loop", std::vector<int64_t>{Trips, int64_t(L.getLoopDepth()),
                                                       int64_t(L.getNumBlocks()), Instructions,
                                                       Memory, Calls}}});
        return Runner.send<int64_t>();
    }

    shmbridge::Runner Runner{nullptr}; // $SHMBRIDGE_URL
    uint64_t Unanswered = 0;
    std::string Why;
};

} // namespace

extern "C" LLVM_ATTRIBUTE_WEAK __attribute__((visibility("default"))) PassPluginLibraryInfo
llvmGetPassPluginInfo() {
    return plugin<Advisor>("shmbridge-unroll");
}
