// A plug-in whose pass asks an Advisor about each function, just before LLVM vectorises its loops.

#include "llvm/Passes/PassBuilder.h"
#include "llvm/Plugins/PassPlugin.h"

// Advisor has advise(Function &, FunctionAnalysisManager &), and ends with the compilation.
template <class Advisor>
struct AdvicePass : llvm::PassInfoMixin<AdvicePass<Advisor>> {
    llvm::PreservedAnalyses run(llvm::Function &F, llvm::FunctionAnalysisManager &FAM) {
        if (!Advice) Advice = std::make_shared<Advisor>();
        Advice->advise(F, FAM);
        return llvm::PreservedAnalyses::all(); // metadata changes no analysis
    }
    std::shared_ptr<Advisor> Advice;
};

template <class Advisor>
llvm::PassPluginLibraryInfo plugin(const char *Name) {
    return {LLVM_PLUGIN_API_VERSION, Name, LLVM_VERSION_STRING, [](llvm::PassBuilder &PB) {
                PB.registerVectorizerStartEPCallback(
                    [](llvm::FunctionPassManager &PM, llvm::OptimizationLevel Level) {
                        if (Level != llvm::OptimizationLevel::O0) PM.addPass(AdvicePass<Advisor>());
                    });
            }};
}
