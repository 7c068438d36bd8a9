// What can be done with a live range, before anything is done: registers, and places to split it.

#include "llvm/CodeGen/LiveIntervals.h"
#include "llvm/CodeGen/LiveRegMatrix.h"
#include "llvm/CodeGen/MachineBlockFrequencyInfo.h"
#include "llvm/CodeGen/MachineFrameInfo.h"
#include "llvm/CodeGen/MachineLoopInfo.h"
#include "llvm/CodeGen/MachineRegisterInfo.h"
#include "llvm/CodeGen/RegisterClassInfo.h"
#include "llvm/CodeGen/TargetInstrInfo.h"
#include "llvm/CodeGen/TargetRegisterInfo.h"
#include "llvm/CodeGen/TargetSubtargetInfo.h"
#include "llvm/CodeGen/VirtRegMap.h"

using namespace llvm;

// A register: free, or taken from lighter live ranges, or neither.
struct Choice {
    MCRegister Reg;
    bool Legal = true, Hint = false;
    float Evicts = 0; // the weight of the heaviest live range that would lose it
};

// The live range gets a new register in a loop or a block, with copies before and behind; or behind a
// gap between two of its uses, with a third register in the gap, which may be spilled.
struct Place {
    MachineBasicBlock *Block = nullptr; // the block, or where a loop begins
    MachineLoop *Loop = nullptr;
    MachineInstr *Gap = nullptr; // the last use before it
    float Saved = 0, Copies = 0; // estimates: how often its uses run, and the copies
    unsigned Uses = 0;
    bool Writes = false;
};

// The uses of a live range in one block.
struct Uses {
    unsigned Number = 0;
    bool Writes = false, Fixed = false; // Fixed: a terminator writes it, or a bundle has it
};

struct Ranges {
    MachineFunction &MF;
    LiveIntervals &LIS;
    LiveRegMatrix &Matrix;
    VirtRegMap &VRM;
    MachineLoopInfo &Loops;
    MachineBlockFrequencyInfo &Frequencies;
    RegisterClassInfo Classes{};
    MachineRegisterInfo &MRI = MF.getRegInfo();
    const TargetRegisterInfo &TRI = *MF.getSubtarget().getRegisterInfo();
    const TargetInstrInfo &TII = *MF.getSubtarget().getInstrInfo();

    float frequency(const MachineBasicBlock *B) const {
        return Frequencies.getBlockFreqRelativeToEntryBlock(B);
    }

    // Those that hold a part of the register.
    SmallVector<const LiveInterval *, 4> holders(const LiveInterval &LI, MCRegister Reg) {
        SmallVector<const LiveInterval *, 4> Found;
        for (MCRegUnit Unit : TRI.regunits(Reg))
            for (const LiveInterval *Other : Matrix.query(LI, Unit).interferingVRegs())
                if (!is_contained(Found, Other)) Found.push_back(Other);
        return Found;
    }

    // Hints first, then in the target's order.
    std::vector<Choice> registers(const LiveInterval &LI, size_t Most) {
        auto Order = Classes.getOrder(MRI.getRegClass(LI.reg()));
        SmallVector<MCPhysReg, 8> Hints;
        bool Hard = TRI.getRegAllocationHints(LI.reg(), Order, Hints, MF, &VRM, &Matrix);
        std::vector<Choice> Found;
        for (MCPhysReg Reg : Hints) Found.push_back(choice(LI, Reg, true));
        if (!Hard)
            for (MCPhysReg Reg : Order)
                if (!is_contained(Hints, Reg)) Found.push_back(choice(LI, Reg, false));
        if (Found.size() > Most) Found.resize(Most);
        return Found;
    }

    Choice choice(const LiveInterval &LI, MCRegister Reg, bool Hint) {
        Choice C{Reg, true, Hint};
        auto Kind = Matrix.checkInterference(LI, Reg);
        if (Kind == LiveRegMatrix::IK_VirtReg)
            for (const LiveInterval *Other : holders(LI, Reg)) {
                C.Evicts = std::max(C.Evicts, Other->weight());
                // Only lighter ones, so allocation ends.
                C.Legal &= Other->isSpillable() && Other->weight() < LI.weight();
            }
        else C.Legal = Kind == LiveRegMatrix::IK_Free;
        return C;
    }

    MapVector<MachineBasicBlock *, Uses> uses(const LiveInterval &LI) {
        MapVector<MachineBasicBlock *, Uses> Found;
        for (MachineInstr &MI : MRI.reg_nodbg_instructions(LI.reg())) {
            Uses &Of = Found[MI.getParent()];
            bool Writes = MI.modifiesRegister(LI.reg(), nullptr);
            Of.Writes |= Writes;
            Of.Fixed |= (MI.isTerminator() && Writes) || MI.isBundled();
            // Copies that split it, or join its values, are not what a register is for.
            bool Copy = MI.isFullCopy() && MI.getOperand(0).getReg().isVirtual() &&
                        MI.getOperand(1).getReg().isVirtual();
            Of.Number += !Copy;
        }
        return Found;
    }

    static bool closed(const MachineBasicBlock *B) { // to copies at its beginning
        return B->isEHPad() || B->isInlineAsmBrIndirectTarget();
    }

    // Loops, then blocks, with uses of a live range that others have, too.
    std::vector<Place> places(const LiveInterval &LI, size_t Most) {
        std::vector<Place> Found;
        if (!LI.isSpillable() || LI.empty() || LI.hasSubRanges()) return Found;
        auto Used = uses(LI);
        if (Used.size() == 1) {
            gap(LI, Used.front().second, Found);
            return Found;
        }
        SmallSetVector<MachineLoop *, 8> Around;
        for (auto &[Block, Of] : Used)
            for (auto *L = Loops.getLoopFor(Block); L; L = L->getParentLoop()) Around.insert(L);
        for (MachineLoop *L : Around) {
            Place P = sum(Used, [&](auto *Block) { return L->contains(Block); });
            P.Loop = L;
            if (P.Uses && in_loop(LI, P)) Found.push_back(P);
        }
        for (auto &[Block, Of] : Used) {
            Place P = sum(Used, [B = Block](auto *Other) { return Other == B; });
            P.Block = Block;
            auto Closed = [](auto *Next) { return closed(Next); };
            if (P.Uses < 2 || closed(Block) || any_of(Block->successors(), Closed)) continue;
            P.Copies =
                frequency(Block) * (LIS.isLiveInToMBB(LI, Block) + LIS.isLiveOutOfMBB(LI, Block));
            Found.push_back(P);
        }
        stable_sort(Found, [](const Place &A, const Place &B) {
            return A.Saved - A.Copies > B.Saved - B.Copies;
        });
        if (Found.size() > Most) Found.resize(Most);
        return Found;
    }

    // The longest gap between uses in one block.
    void gap(const LiveInterval &LI, const Uses &Of, std::vector<Place> &Found) {
        std::vector<SlotIndex> At;
        for (MachineInstr &MI : MRI.reg_nodbg_instructions(LI.reg()))
            At.push_back(LIS.getInstructionIndex(MI));
        if (At.size() < 3 || Of.Fixed || !LIS.intervalIsInOneMBB(LI)) return;
        sort(At);
        size_t Best = 0;
        int Longest = 3 * SlotIndex::InstrDist;
        for (size_t I = 0; I + 1 < At.size(); ++I) {
            int Length = At[I].distance(At[I + 1]);
            if (Length <= Longest || !LI.liveAt(At[I + 1])) continue;
            Best = I + 1;
            Longest = Length;
        }
        if (!Best) return;
        Place P;
        P.Gap = LIS.getInstructionFromIndex(At[Best - 1]);
        P.Block = P.Gap->getParent();
        P.Uses = At.size();
        P.Writes = Of.Writes;
        P.Saved = At.size() * frequency(P.Block);
        P.Copies = 2 * frequency(P.Block);
        Found.push_back(P);
    }

    // Adds up the uses in some blocks; none if a copy cannot help there, or all uses are there.
    template <class T, class F>
    Place sum(T &Used, F Inside) {
        Place P;
        bool Others = false;
        for (auto &[Block, Of] : Used) {
            if (!Inside(Block)) {
                Others |= Of.Number > 0;
                continue;
            }
            if (Of.Fixed) return {};
            P.Uses += Of.Number;
            P.Writes |= Of.Writes;
            P.Saved += Of.Number * frequency(Block);
        }
        return Others ? P : Place();
    }

    // Whether copies can be put before and behind the loop.
    bool in_loop(const LiveInterval &LI, Place &P) {
        P.Block = P.Loop->getLoopPreheader();
        bool In = LIS.isLiveInToMBB(LI, P.Loop->getHeader());
        if (!P.Block || In != LIS.isLiveOutOfMBB(LI, P.Block)) return false;
        P.Copies = In ? frequency(P.Block) : 0;
        SmallVector<MachineBasicBlock *, 4> Exits;
        P.Loop->getUniqueExitBlocks(Exits);
        for (MachineBasicBlock *Exit : Exits) {
            if (!P.Writes || !LIS.isLiveInToMBB(LI, Exit)) continue;
            auto Outside = [&](auto *From) { return !P.Loop->contains(From); };
            if (closed(Exit) || any_of(Exit->predecessors(), Outside)) return false;
            P.Copies += frequency(Exit);
        }
        return true;
    }

    // How many instructions the allocation has added, each as often as its block runs: stores to spill
    // slots and loads from them, copies between registers, and saves of callee-saved registers.
    double cost() {
        double Cost = 0;
        const MachineFrameInfo &Frame = MF.getFrameInfo();
        SmallVector<const MachineMemOperand *, 2> Accesses;
        auto Spilled = [&](const MachineMemOperand *Access) {
            auto *At = dyn_cast_or_null<FixedStackPseudoSourceValue>(Access->getPseudoValue());
            return At && Frame.isSpillSlotObjectIndex(At->getFrameIndex());
        };
        auto Place = [&](Register Reg) {
            return Reg.isVirtual() ? VRM.getPhys(Reg) : Reg.asMCReg();
        };
        for (const MachineBasicBlock &B : MF)
            for (const MachineInstr &MI : B) {
                Accesses.clear();
                int Slot;
                bool Adds =
                    (TII.isLoadFromStackSlot(MI, Slot) || TII.isStoreToStackSlot(MI, Slot)) &&
                    Frame.isSpillSlotObjectIndex(Slot);
                TII.hasLoadFromStackSlot(MI, Accesses);
                TII.hasStoreToStackSlot(MI, Accesses);
                Adds |= any_of(Accesses, Spilled);
                if (MI.isFullCopy())
                    Adds |= Place(MI.getOperand(0).getReg()) != Place(MI.getOperand(1).getReg());
                if (Adds) Cost += frequency(&B);
            }
        for (const MCPhysReg *Saved = MRI.getCalleeSavedRegs(); *Saved; ++Saved)
            if (Matrix.isPhysRegUsed(*Saved)) Cost += 2;
        return Cost;
    }
};
