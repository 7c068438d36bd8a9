// clang -cc1 as a separate program, linked statically with all of LLVM's targets: a compiler of the real size. WITH_SHMBRIDGE:
// examples/llvm/inliner is part of it and asks $SHMBRIDGE_URL about each call site, if that is set. WITH_GRPC: integrate_grpc.cpp is, and
// asks $BENCH_GRPC one question.
#include "clang/Frontend/CompilerInstance.h"
#include "clang/Frontend/CompilerInvocation.h"
#include "clang/FrontendTool/Utils.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdlib>

#ifdef WITH_SHMBRIDGE
#include "llvm/Plugins/PassPlugin.h"
extern "C" llvm::PassPluginLibraryInfo llvmGetPassPluginInfo();
#endif
#ifdef WITH_GRPC
bool askOverGrpc(const char *Target);
#endif

int main(int Count, const char **Arguments) {
    llvm::InitializeAllTargets();
    llvm::InitializeAllTargetMCs();
    llvm::InitializeAllAsmPrinters();
    llvm::InitializeAllAsmParsers();
    clang::CompilerInstance Compiler;
    Compiler.createDiagnostics();
    if (!clang::CompilerInvocation::CreateFromArgs(Compiler.getInvocation(),
                                                   {Arguments + 1, Arguments + Count},
                                                   Compiler.getDiagnostics()))
        return 2;
    Compiler.createVirtualFileSystem();
    Compiler.createDiagnostics();
#ifdef WITH_SHMBRIDGE
    if (std::getenv("SHMBRIDGE_URL"))
        Compiler.getCodeGenOpts().PassBuilderCallbacks.push_back(
            llvmGetPassPluginInfo().RegisterPassBuilderCallbacks);
#endif
#ifdef WITH_GRPC
    if (const char *Target = std::getenv("BENCH_GRPC"))
        if (!askOverGrpc(Target)) llvm::errs() << "warning: no answer from " << Target << '\n';
#endif
    return !clang::ExecuteCompilerInvocation(&Compiler);
}
