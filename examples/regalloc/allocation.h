// One function's allocation as an episode: what a model is asked, and what its answers do.

#include "ranges.h"
#include "shmbridge_rl.hpp"
#include <queue>

#include "llvm/CodeGen/CalcSpillWeights.h"
#include "llvm/CodeGen/LiveDebugVariables.h"
#include "llvm/CodeGen/LiveRangeEdit.h"
#include "llvm/CodeGen/MIR2Vec.h"
#include "llvm/CodeGen/MachineInstrBuilder.h"
#include "llvm/CodeGen/Spiller.h"

enum Task : int64_t { Colour, Split, Spill, Tasks };
constexpr int64_t Registers = 64, Places = 8, MostSplits = 4;
constexpr int64_t RangeSize = 12, RegisterSize = 6, PlaceSize = 6;

inline float size_of(double X) { return std::log2(1 + std::max(0.0, std::min(X, 1e9))); }

struct Counts {
    uint64_t Questions = 0, Splits = 0, Spills = 0, Evictions = 0, Own = 0;
};

// One function: an episode. The state is the live range whose turn it is.
class Allocation : public shmbridge::Environment, LiveRangeEdit::Delegate {
public:
    Allocation(Ranges &R, VirtRegAuxInfo &Weights, Spiller &S, LiveDebugVariables &Variables,
               mir2vec::MIREmbedder *Embedder)
        : R(R), Weights(Weights), TheSpiller(S), Variables(Variables), Embedder(Embedder) {
        Weights.calculateSpillWeightsAndHints();
        for (unsigned I = 0, N = R.MRI.getNumVirtRegs(); I != N; ++I) {
            Register Reg = Register::index2VirtReg(I);
            if (!R.MRI.reg_nodbg_empty(Reg) && !R.VRM.hasPhys(Reg)) enqueue(Reg);
        }
    }

    bool changed() const { return Changed; }
    const std::string &why() const { return Why; }
    Counts counts() const { return Count; }

    // Allocates what an episode that has ended early has left.
    void finish() {
        while (LI || next()) perform(own());
        TheSpiller.postOptimization();
        for (MachineInstr *Dead : DeadRemats) {
            R.LIS.RemoveMachineInstrFromMaps(*Dead);
            Dead->eraseFromParent();
        }
    }

    void reset() override { turn(); }

    void step(const shmbridge::Action &Action) override {
        if (legal(Action.index)) return act(Action.index);
        std::string Found = "expected an action that action_mask allows, found ";
        Found += std::to_string(Action.index);
        if (!Changed) return stop(SHMB_INVALID, Found.c_str());
        if (Count.Own++ == 0) Why = Found;
        act(own());
    }

    bool on_error(const shmbridge::result<> &Failure, shmbridge::Action &Action) override {
        if (!Changed) return false; // to greedy
        if (Count.Own++ == 0) Why = Failure.message();
        Action.index = own();
        return true;
    }

private:
    // ---- The state ----

    void act(int64_t Index) {
        perform(Index);
        turn();
    }

    void turn() {
        if (LI || next()) return observe();
        add_reward(-R.cost());
        set_done();
    }

    // What cannot be spilled first, then the largest: a heavier one may take its register later.
    void enqueue(Register Reg) {
        const LiveInterval &Range = R.LIS.getInterval(Reg);
        bool Spillable = Range.isSpillable();
        Queue.push({Spillable ? Range.getSize() : std::numeric_limits<unsigned>::max(), ~Reg.id()});
    }

    bool next() {
        while (!Queue.empty()) {
            Register Reg = ~Queue.top().second;
            Queue.pop();
            if (!R.LIS.hasInterval(Reg) || R.VRM.hasPhys(Reg)) continue;
            if (R.MRI.reg_nodbg_empty(Reg)) {
                R.LIS.removeInterval(Reg);
                continue;
            }
            R.Matrix.invalidateVirtRegs();
            LI = &R.LIS.getInterval(Reg);
            Asks = Tasks;
            Choices = R.registers(*LI, Registers);
            Where.clear();
            if (SplitsOf.lookup(Reg) < MostSplits) Where = R.places(*LI, Places);
            return true;
        }
        return false;
    }

    int64_t best() const { // the cheapest legal register, or -1
        int64_t Best = -1;
        for (size_t I = 0; I < Choices.size(); ++I)
            if (Choices[I].Legal && (Best < 0 || Choices[I].Evicts < Choices[Best].Evicts))
                Best = I;
        return Best;
    }

    bool legal(int64_t Index) const {
        if (Asks == Colour)
            return Index >= 0 && Index < int64_t(Choices.size()) && Choices[Index].Legal;
        if (Asks == Split) return Index >= 0 && Index < int64_t(Where.size());
        if (Index == Colour) return best() >= 0;
        return Index == Split ? !Where.empty() : Index == Spill && LI->isSpillable();
    }

    // The heuristic for a question without a usable answer, in the middle of a function.
    int64_t own() const {
        if (Asks == Colour) return best();
        if (Asks == Split) return 0;
        return best() >= 0 || !LI->isSpillable() ? Colour : Spill;
    }

    // ---- Actions ----

    void perform(int64_t Index) {
        if (Asks == Tasks && Index != Spill) {
            Asks = Task(Index); // the other agent's turn
            if (Asks == Colour && best() < 0) exhausted();
            return;
        }
        Changed = true;
        LiveInterval &Range = *std::exchange(LI, nullptr);
        SmallVector<Register, 4> New;
        if (Asks == Colour) take(Range, Choices[Index]);
        else if (Asks == Split) split(Range, Where[Index], New);
        else spill(Range, New);
        for (Register Reg : New) {
            if (!R.LIS.hasInterval(Reg)) continue;
            if (R.MRI.reg_nodbg_empty(Reg)) R.LIS.removeInterval(Reg);
            else enqueue(Reg);
        }
    }

    // As in LLVM's basic allocator: an error, and any register, so that the compiler goes on.
    void exhausted() {
        R.MF.getFunction().getContext().emitError(
            "ran out of registers during register allocation");
        R.VRM.assignVirt2Phys(LI->reg(), R.Classes.getOrder(R.MRI.getRegClass(LI->reg())).front());
        LI = nullptr;
    }

    void take(LiveInterval &Range, const Choice &C) {
        for (const LiveInterval *Other : R.holders(Range, C.Reg)) {
            ++Count.Evictions;
            R.Matrix.unassign(*Other);
            enqueue(Other->reg());
        }
        R.Matrix.assign(Range, C.Reg);
    }

    void spill(LiveInterval &Range, SmallVectorImpl<Register> &New) {
        ++Count.Spills;
        LiveRangeEdit Edit(&Range, New, R.MF, R.LIS, &R.VRM, this, &DeadRemats);
        TheSpiller.spill(Edit);
    }

    void copy(MachineBasicBlock &B, MachineBasicBlock::iterator At, Register To, Register From) {
        auto *MI =
            BuildMI(B, At, DebugLoc(), R.TII.get(TargetOpcode::COPY), To).addReg(From).getInstr();
        R.LIS.InsertMachineInstrInMaps(*MI);
    }

    void split(LiveInterval &Range, const Place &P, SmallVectorImpl<Register> &New) {
        ++Count.Splits;
        if (P.Gap) return split_gap(Range, *P.Gap, New);
        Register Old = Range.reg(), Local = R.MRI.cloneVirtualRegister(Old);
        R.VRM.grow();
        auto Inside = [&](const MachineInstr &MI) {
            return P.Loop ? P.Loop->contains(MI.getParent())
                          : MI.getParent() == P.Block && !MI.isTerminator();
        };
        SmallVector<MachineBasicBlock *, 4> Exits;
        if (P.Loop && P.Writes) {
            P.Loop->getUniqueExitBlocks(Exits);
            erase_if(Exits, [&](auto *Exit) { return !R.LIS.isLiveInToMBB(Range, Exit); });
        }
        bool In =
            P.Loop ? R.LIS.isLiveOutOfMBB(Range, P.Block) : R.LIS.isLiveInToMBB(Range, P.Block);
        bool Out = R.LIS.isLiveOutOfMBB(Range, P.Block);
        SmallVector<MachineOperand *, 16> Operands;
        for (MachineOperand &Op : R.MRI.reg_nodbg_operands(Old))
            if (Inside(*Op.getParent())) Operands.push_back(&Op);
        for (MachineOperand *Op : Operands) {
            Op->setReg(Local);
            if (Op->isUse()) Op->setIsKill(false);
        }
        for (MachineBasicBlock *Exit : Exits)
            copy(*Exit, Exit->SkipPHIsLabelsAndDebug(Exit->begin()), Old, Local);
        auto End = P.Block->getFirstTerminator();
        if (P.Loop) {
            if (In) copy(*P.Block, End, Local, Old);
        } else {
            if (In) copy(*P.Block, P.Block->SkipPHIsLabelsAndDebug(P.Block->begin()), Local, Old);
            Out |= any_of(P.Block->terminators(),
                          [&](auto &MI) { return MI.readsRegister(Old, nullptr); });
            if (Out) copy(*P.Block, End, Old, Local);
        }
        renew({Old, Local}, New);
    }

    void split_gap(LiveInterval &Range, MachineInstr &Last, SmallVectorImpl<Register> &New) {
        Register Old = Range.reg();
        Register Within = R.MRI.cloneVirtualRegister(Old), Behind = R.MRI.cloneVirtualRegister(Old);
        R.VRM.grow();
        SlotIndex End = R.LIS.getInstructionIndex(Last);
        SmallVector<MachineOperand *, 16> Operands;
        for (MachineOperand &Op : R.MRI.reg_nodbg_operands(Old))
            if (R.LIS.getInstructionIndex(*Op.getParent()) > End) Operands.push_back(&Op);
        MachineInstr *First = Operands.front()->getParent();
        for (MachineOperand *Op : Operands) {
            MachineInstr *At = Op->getParent();
            if (R.LIS.getInstructionIndex(*At) < R.LIS.getInstructionIndex(*First)) First = At;
            Op->setReg(Behind);
            if (Op->isUse()) Op->setIsKill(false);
        }
        copy(*Last.getParent(), std::next(Last.getIterator()), Within, Old);
        copy(*Last.getParent(), First->getIterator(), Behind, Within);
        renew({Old, Within, Behind}, New);
    }

    // The live ranges of these registers, and of what is not connected.
    void renew(std::initializer_list<Register> Parts, SmallVectorImpl<Register> &New) {
        Register Old = *Parts.begin();
        int64_t Before = SplitsOf.lookup(Old);
        R.LIS.removeInterval(Old);
        New.assign(Parts);
        for (Register Reg : Parts) {
            SmallVector<LiveInterval *, 4> More;
            R.LIS.splitSeparateComponents(R.LIS.createAndComputeVirtRegInterval(Reg), More);
            for (LiveInterval *Part : More) New.push_back(Part->reg());
        }
        R.VRM.grow();
        Variables.splitRegister(Old, New, R.LIS);
        for (Register Reg : New) {
            SplitsOf[Reg] = Before + 1;
            Weights.calculateSpillWeightAndHint(R.LIS.getInterval(Reg));
        }
    }

    // LiveRangeEdit::Delegate: the spiller changes live ranges that may have a register.
    bool LRE_CanEraseVirtReg(Register Reg) override {
        LiveInterval &Range = R.LIS.getInterval(Reg);
        if (R.VRM.hasPhys(Reg)) {
            R.Matrix.unassign(Range);
            return true;
        }
        Range.clear(); // it may still be in the queue
        return false;
    }
    void LRE_WillShrinkVirtReg(Register Reg) override {
        if (!R.VRM.hasPhys(Reg)) return;
        R.Matrix.unassign(R.LIS.getInterval(Reg));
        enqueue(Reg);
    }

    // ---- Features ----

    void observe() {
        ++Count.Questions;
        shmbridge::Runner &To = next_agent(Asks == Colour  ? "colour"
                                           : Asks == Split ? "split"
                                                           : "task");
        auto Used = R.uses(*LI);
        auto Graph = neighbours();
        To.populate(
            {{"function", R.MF.getName()},
             {"class", std::string_view(R.TRI.getRegClassName(R.MRI.getRegClass(LI->reg())))}});
        auto Mask = To.feature<bool>("action_mask", Asks == Colour  ? Registers
                                                    : Asks == Split ? Places
                                                                    : +Tasks);
        for (size_t I = 0; I < Mask.size(); ++I) Mask[I] = legal(I);
        if (auto To_ = To.feature<float>("range", RangeSize); !To_.empty())
            range(To_.data(), Used, Graph.size() / 3);
        if (Asks == Colour)
            rows(To, "registers", {Registers, RegisterSize}, [&](float *X) { registers(X); });
        if (Asks == Split) rows(To, "places", {Places, PlaceSize}, [&](float *X) { places(X); });
        if (getenv("REGALLOC_WITHOUT_LISTS")) return; // which a bitstream cannot carry
        std::vector<float> Blocks;
        for (auto &[Block, Of] : Used)
            Blocks.insert(Blocks.end(), {R.frequency(Block), float(Of.Number)});
        list(To, "blocks", 2, Blocks);
        list(To, "neighbours", 3, Graph);
        if (!Embedder) return;
        auto Vectors = vectors();
        list(To, "embeddings", Width, Vectors);
    }

    template <class F>
    static void rows(shmbridge::Runner &To, const char *Name, shmbridge::dims Shape, F Fill) {
        auto X = To.feature<float>(Name, Shape);
        std::fill(X.begin(), X.end(), 0.0f);
        if (!X.empty()) Fill(X.data());
    }

    // As a list with one row of any length: so that a Gymnasium space fits all of them.
    static void list(shmbridge::Runner &To, const char *Name, int64_t Inner, ArrayRef<float> X) {
        int64_t Rows = X.size() / Inner;
        void *At = shmb_feature_ragged(To.get(), Name, SHMB_FLOAT32, 1, &Rows, 2, &Inner);
        if (At && Rows) std::memcpy(At, X.data(), Rows * Inner * sizeof(float));
    }

    void range(float *X, MapVector<MachineBasicBlock *, Uses> &Used, size_t Neighbours) {
        double Cost = 0, Number = 0;
        for (auto &[Block, Of] : Used) {
            Cost += Of.Number * R.frequency(Block);
            Number += Of.Number;
        }
        int64_t Best = best();
        bool Free = Best >= 0 && Choices[Best].Evicts == 0;
        float Saved = Where.empty() ? 0 : Where[0].Saved - Where[0].Copies;
        MachineInstr *Definition = R.MRI.getUniqueVRegDef(LI->reg());
        const float All[RangeSize] = {size_of(LI->weight() * 1000),
                                      size_of(LI->getSize()),
                                      float(LI->isSpillable()),
                                      float(Free),
                                      Best < 0 ? 1 : ratio(Choices[Best].Evicts),
                                      float(Best >= 0 && !Free),
                                      float(!Where.empty()),
                                      Cost > 0 ? float(Saved / Cost) : 0,
                                      float(!!R.LIS.intervalIsInOneMBB(*LI)),
                                      size_of(Number),
                                      size_of(Neighbours),
                                      float(Definition && R.TII.isReMaterializable(*Definition))};
        std::copy_n(All, RangeSize, X);
    }

    float ratio(float Weight) const {
        return LI->isSpillable() ? Weight / std::max(LI->weight(), 1e-9f) : 0;
    }

    void registers(float *X) {
        for (size_t I = 0; I < Choices.size(); ++I, X += RegisterSize) {
            const Choice &C = Choices[I];
            bool Saved = R.Classes.getLastCalleeSavedAlias(C.Reg).isValid();
            bool Used = R.MRI.isPhysRegUsed(C.Reg) || R.Matrix.isPhysRegUsed(C.Reg);
            const float All[RegisterSize] = {float(C.Legal && C.Evicts == 0),
                                             C.Legal ? ratio(C.Evicts) : 1,
                                             float(C.Hint),
                                             float(Saved && !Used),
                                             float(Used),
                                             float(I) / Registers};
            std::copy_n(All, RegisterSize, X);
        }
    }

    void places(float *X) {
        for (size_t I = 0; I < Where.size(); ++I, X += PlaceSize) {
            const Place &P = Where[I];
            const float All[PlaceSize] = {float(!!P.Loop),   size_of(P.Saved),
                                          size_of(P.Copies), P.Copies / std::max(P.Saved, 1e-9f),
                                          float(P.Writes),   size_of(P.Uses)};
            std::copy_n(All, PlaceSize, X);
        }
    }

    // A row of the interference graph: for each neighbour its number, its register or 0, its weight.
    std::vector<float> neighbours() {
        std::vector<float> Found;
        if (LI->empty()) return Found;
        for (unsigned I = 0, N = R.MRI.getNumVirtRegs(); I != N; ++I) {
            Register Reg = Register::index2VirtReg(I);
            if (Reg == LI->reg() || !R.LIS.hasInterval(Reg)) continue;
            const LiveInterval &Other = R.LIS.getInterval(Reg);
            if (Other.empty() || Other.endIndex() <= LI->beginIndex() ||
                LI->endIndex() <= Other.beginIndex() || !LI->overlaps(Other))
                continue;
            float Colour = R.VRM.hasPhys(Reg) ? R.VRM.getPhys(Reg).id() : 0;
            Found.insert(Found.end(), {float(I), Colour, Other.weight()});
        }
        return Found;
    }

    // MIR2Vec: a row for each instruction that has the register.
    std::vector<float> vectors() {
        std::vector<float> Found;
        for (MachineInstr &MI : R.MRI.reg_nodbg_instructions(LI->reg())) {
            const auto &Vector = Embedder->getMInstVector(MI);
            Width = Vector.size();
            Found.insert(Found.end(), Vector.begin(), Vector.end());
        }
        return Found;
    }

    Ranges &R;
    VirtRegAuxInfo &Weights;
    Spiller &TheSpiller;
    LiveDebugVariables &Variables;
    mir2vec::MIREmbedder *Embedder;
    std::priority_queue<std::pair<unsigned, unsigned>> Queue; // size, ~ the register's number
    LiveInterval *LI = nullptr;                               // whose turn it is
    Task Asks = Tasks;                                        // Tasks: which task?
    std::vector<Choice> Choices;
    std::vector<Place> Where;
    DenseMap<Register, int64_t> SplitsOf;
    SmallPtrSet<MachineInstr *, 32> DeadRemats;
    Counts Count;
    bool Changed = false;
    int64_t Width = 1;
    std::string Why;
};
