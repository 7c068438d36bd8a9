// Advice on each innermost loop, for an unmodified clang-22 or opt-22.
//
// Just before LLVM distributes, vectorises and unrolls, the pass sends each loop's dependence graph
// to two agents. Their advice becomes metadata of the loop, like a programmer's pragma. LLVM follows it
// only if that is legal.

#include "llvm/Analysis/LoopAccessAnalysis.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/WithColor.h"
#include "llvm/Transforms/Utils/LoopUtils.h"

#include "../llvm/loop_pass.h"
#include "shmbridge_rl.hpp"

using namespace llvm;

namespace {

// One loop's instructions, in order, and their dependences.
struct Graph {
    std::vector<StringRef> Opcodes;
    std::vector<std::vector<int64_t>> Uses;   // of each instruction's value, within the loop
    std::vector<std::vector<int64_t>> Memory; // later accesses that depend on each instruction's
    std::vector<int64_t> Bytes;               // of each access
    std::vector<int64_t> Strides; // of each access, in bytes; the greatest int64: unknown

    Graph(const Loop &L, ScalarEvolution &Evolution, const LoopAccessInfo &Accesses) {
        DenseMap<const Instruction *, int64_t> Numbers;
        for (const BasicBlock *Block : L.blocks())
            for (const Instruction &I : *Block) {
                Numbers[&I] = static_cast<int64_t>(Opcodes.size());
                Opcodes.emplace_back(I.getOpcodeName());
                if (const Value *Pointer = getLoadStorePointerOperand(&I)) {
                    const DataLayout &Layout = I.getDataLayout();
                    Bytes.push_back(
                        Layout.getTypeStoreSize(getLoadStoreType(&I)).getKnownMinValue());
                    Strides.push_back(stride(Evolution.getSCEV(const_cast<Value *>(Pointer)), L));
                }
            }
        Uses.resize(Opcodes.size());
        Memory.resize(Opcodes.size());
        for (const auto &[I, Number] : Numbers)
            for (const User *U : I->users())
                if (auto Found = Numbers.find(dyn_cast<Instruction>(U)); Found != Numbers.end())
                    Uses[Number].push_back(Found->second);
        const MemoryDepChecker &Checker = Accesses.getDepChecker();
        if (const auto *Dependences = Checker.getDependences()) // none: too many
            for (const MemoryDepChecker::Dependence &D : *Dependences)
                Memory[Numbers.lookup(D.getSource(Checker))].push_back(
                    Numbers.lookup(D.getDestination(Checker)));
    }

private:
    static int64_t stride(const SCEV *Address, const Loop &L) {
        if (auto *Recurrence = dyn_cast<SCEVAddRecExpr>(Address))
            if (auto *Step = dyn_cast<SCEVConstant>(Recurrence->getOperand(1));
                Step && Recurrence->isAffine() && Recurrence->getLoop() == &L)
                return Step->getAPInt().getSExtValue();
        return std::numeric_limits<int64_t>::max();
    }
};

// The loops of a function as an environment: for each of them first "distribute" acts, then "vectorize".
class LoopAdvice final : public shmbridge::Environment {
public:
    LoopAdvice(Function &F, FunctionAnalysisManager &FAM)
        : F(F), Evolution(FAM.getResult<ScalarEvolutionAnalysis>(F)),
          Accesses(FAM.getResult<LoopAccessAnalysis>(F)) {
        for (Loop *L : FAM.getResult<LoopAnalysis>(F).getLoopsInPreorder())
            if (L->isInnermost() && !getBooleanLoopAttribute(L, "llvm.loop.isvectorized"))
                Loops.push_back(L);
    }
    bool empty() const { return Loops.empty(); }
    uint64_t asked() const { return 2 * Current + !Distributing; }
    uint64_t defaulted() const { return Defaulted; }
    const std::string &why() const { return Why; }

private:
    void reset() override { observe(); }

    void step(const shmbridge::Action &Action) override {
        if (Distributing) distribute(Action);
        else vectorize(Action);
        Current += !Distributing;
        Distributing = !Distributing;
        if (Current == Loops.size()) set_done();
        else observe();
    }

    // 0: leave it to LLVM; 1: distribute.
    void distribute(const shmbridge::Action &Action) {
        auto Advice = Action.as<int64_t>();
        if (!Advice || *Advice < 0 || *Advice > 1) return leave(Advice, "0 or 1");
        if (*Advice) addStringMetadataToLoop(Loops[Current], "llvm.loop.distribute.enable", 1);
    }

    // Vector width, interleave count and unroll count. 0: leave that to LLVM.
    void vectorize(const shmbridge::Action &Action) {
        auto Advice = Action.as<std::vector<int64_t>>();
        auto Allowed = [](int64_t Count) {
            return Count == 0 || (Count <= 64 && isPowerOf2_64(Count));
        };
        if (!Advice || Advice->size() != 3 || !all_of(*Advice, Allowed))
            return leave(Advice,
                         "width, interleave and unroll count: each 0 or a power of 2 up to 64");
        Loop *L = Loops[Current];
        auto Set = [&](const char *Name, int64_t Value) {
            addStringMetadataToLoop(L, Name, static_cast<unsigned>(Value));
        };
        int64_t Width = (*Advice)[0], Interleave = (*Advice)[1], Unroll = (*Advice)[2];
        if (Width) Set("llvm.loop.vectorize.width", Width);
        if (Width > 1) Set("llvm.loop.vectorize.enable", 1);
        if (Interleave) Set("llvm.loop.interleave.count", Interleave);
        if (Unroll == 1) Set("llvm.loop.unroll.disable", 1);
        if (Unroll > 1) Set("llvm.loop.unroll.count", Unroll);
    }

    bool on_error(const shmbridge::result<> &Error, shmbridge::Action &) override {
        if (Why.empty()) Why = Error.message();
        return true; // step finds no advice
    }

    template <class T>
    void leave(const shmbridge::result<T> &Advice, const char *Expected) {
        Defaulted++;
        if (Why.empty())
            Why = std::string("expected ") + Expected + (Advice ? ", found others" : "");
    }

    void observe() {
        Loop *L = Loops[Current];
        const LoopAccessInfo &Info = Accesses.getInfo(*L);
        const MemoryDepChecker &Checker = Info.getDepChecker();
        Graph G(*L, Evolution, Info);
        DebugLoc Start = L->getStartLoc();
        auto Bits = Checker.isSafeForAnyVectorWidth() ? 0 : Checker.getMaxSafeVectorWidthInBits();
        next_agent(Distributing ? "distribute" : "vectorize")
            .populate({
                {"function", F.getName()},
                {"line", static_cast<int64_t>(Start ? Start.getLine() : 0)}, // 0: not known
                {"depth", static_cast<int64_t>(L->getLoopDepth())},
                {"trip_count", int64_t{Evolution.getSmallConstantTripCount(L)}}, // 0: not known
                {"blocks", static_cast<int64_t>(L->getNumBlocks())},
                {"independent", Info.canVectorizeMemory()}, // only its memory accesses
                {"pointer_checks", int64_t{Info.getNumRuntimePointerChecks()}}, // before the loop
                {"safe_bits", static_cast<int64_t>(Bits)}, // of a vector; 0: any
                {"opcodes", G.Opcodes},
                {"bytes", G.Bytes},
                {"strides", G.Strides},
                {"uses", G.Uses},
                {"memory", G.Memory},
            });
    }

    Function &F;
    ScalarEvolution &Evolution;
    LoopAccessInfoManager &Accesses;
    std::vector<Loop *> Loops;
    size_t Current = 0;
    bool Distributing = true;
    uint64_t Defaulted = 0;
    std::string Why;
};

// A compilation's runner. It counts unanswered questions and reports them once, at the end.
class Advisor {
public:
    void advise(Function &F, FunctionAnalysisManager &FAM) {
        LoopAdvice Environment(F, FAM);
        if (Environment.empty()) return;
        auto Driven = shmbridge::drive(Environment, {&Distribute, &Vectorize});
        Asked += Environment.asked();
        Defaulted += Environment.defaulted();
        if (Why.empty()) Why = Driven ? Environment.why() : Driven.message();
    }
    ~Advisor() {
        if (!Why.empty())
            WithColor::warning(errs(), "shmbridge")
                << Defaulted << " of " << Asked << " decisions are LLVM's own: " << Why << '\n';
    }

private:
    shmbridge::Runner Runner{nullptr}; // $SHMBRIDGE_URL
    shmbridge::Agent Distribute{Runner, "distribute", SHMB_RAW};
    shmbridge::Agent Vectorize{Runner, "vectorize", SHMB_RAW};
    uint64_t Asked = 0, Defaulted = 0;
    std::string Why;
};

} // namespace

extern "C" LLVM_ATTRIBUTE_WEAK __attribute__((visibility("default"))) PassPluginLibraryInfo
llvmGetPassPluginInfo() {
    return plugin<Advisor>("shmbridge-loops");
}
