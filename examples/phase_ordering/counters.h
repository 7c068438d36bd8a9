// What the model sees of a module: counts, in the manner of Autophase (Haj-Ali et al., MLSys 2020).
#ifndef COUNTERS_H
#define COUNTERS_H

#include <array>

#include "llvm/Analysis/LoopInfo.h"
#include "llvm/IR/CFG.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/PassManager.h"

// Their places in "counters". Behind them follows how often each of LLVM's opcodes occurs, by its number.
enum Counter {
    Functions,         // with a body
    LocalFunctions,    // of these, those that no other module can call
    Arguments,         // of functions with a body
    Globals,           // variables
    Blocks,            // basic blocks
    SinglePredecessor, // blocks with one
    Joins,             // blocks with more
    Branches,          // blocks with two successors
    Switches,          // blocks with more
    Edges,             // of the control-flow graph
    CriticalEdges,     // from a block with several successors to one with several predecessors
    Incoming,          // values that phis join
    Loops,
    InnermostLoops,
    LoopDepth, // of all loops together
    Instructions,
    Unused,           // instructions with an unused value, side effects or not
    UsedOnce,         // instructions whose value has one use
    ConstantOperands, // of instructions
    ZeroOperands,     // of these, those that are zero or null
    PointerValues,    // instructions by the type of their value
    FloatValues,
    VectorValues,
    BoolValues,
    Int32Values,
    Int64Values,
    LocalCalls,     // calls of functions with a body in this module
    ExternalCalls,  // calls of declared functions
    IntrinsicCalls, // calls of LLVM's intrinsics
    IndirectCalls,
    FirstOpcode
};
constexpr int CounterCount = FirstOpcode + llvm::Instruction::OtherOpsEnd;
using Counters = std::array<float, CounterCount>;

inline void countInstruction(const llvm::Instruction &I, Counters &C) {
    using namespace llvm;
    C[Instructions]++;
    C[FirstOpcode + I.getOpcode()]++;
    C[Unused] += I.use_empty();
    C[UsedOnce] += I.hasOneUse();
    for (const Value *Operand : I.operands())
        if (auto *Known = dyn_cast<Constant>(Operand); Known && !isa<GlobalValue>(Known))
            C[ConstantOperands]++, C[ZeroOperands] += Known->isNullValue();
    Type *T = I.getType();
    C[PointerValues] += T->isPointerTy();
    C[FloatValues] += T->isFloatingPointTy();
    C[VectorValues] += T->isVectorTy();
    C[BoolValues] += T->isIntegerTy(1);
    C[Int32Values] += T->isIntegerTy(32);
    C[Int64Values] += T->isIntegerTy(64);
    if (auto *Phi = dyn_cast<PHINode>(&I)) C[Incoming] += Phi->getNumIncomingValues();
    if (auto *Call = dyn_cast<CallBase>(&I)) {
        const Function *Callee = Call->getCalledFunction();
        C[!Callee                   ? IndirectCalls
          : Callee->isIntrinsic()   ? IntrinsicCalls
          : Callee->isDeclaration() ? ExternalCalls
                                    : LocalCalls]++;
    }
}

inline void countBlock(const llvm::BasicBlock &B, Counters &C) {
    size_t In = llvm::pred_size(&B), Out = llvm::succ_size(&B);
    C[Blocks]++;
    C[SinglePredecessor] += In == 1;
    C[Joins] += In > 1;
    C[Branches] += Out == 2;
    C[Switches] += Out > 2;
    C[Edges] += Out;
    for (const llvm::BasicBlock *Next : llvm::successors(&B))
        C[CriticalEdges] += Out > 1 && llvm::pred_size(Next) > 1;
    for (const llvm::Instruction &I : B) countInstruction(I, C);
}

inline Counters countersOf(llvm::Module &M, llvm::FunctionAnalysisManager &FAM) {
    Counters C = {};
    C[Globals] = M.global_size();
    for (llvm::Function &F : M) {
        if (F.isDeclaration()) continue;
        C[Functions]++;
        C[LocalFunctions] += F.hasLocalLinkage();
        C[Arguments] += F.arg_size();
        for (const llvm::BasicBlock &B : F) countBlock(B, C);
        for (const llvm::Loop *L : FAM.getResult<llvm::LoopAnalysis>(F).getLoopsInPreorder()) {
            C[Loops]++;
            C[InnermostLoops] += L->isInnermost();
            C[LoopDepth] += L->getLoopDepth();
        }
    }
    return C;
}

#endif
