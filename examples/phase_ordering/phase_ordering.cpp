// Phase ordering in an unmodified opt: a model chooses which passes run, in which order.
//
//     opt-22 -load-pass-plugin=phase-ordering.so -passes='phase-ordering<actions=oz.txt;steps=20>' in.bc -o out.bc
//
// An action is a line of a file, a pipeline in opt's syntax. The pass observes the module, asks
// $SHMBRIDGE_URL, runs the action that the model chose, and repeats this. Without $SHMBRIDGE_URL, or
// if the model fails, it runs -Oz.

#include <cmath>
#include <cstdlib>
#include <optional>

#include "counters.h"
#include "shmbridge_rl.hpp"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Analysis/IR2Vec.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Plugins/PassPlugin.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/WithColor.h"
#include "llvm/Transforms/IPO/AlwaysInliner.h"

using namespace llvm;

namespace {

constexpr const char *Name = "phase-ordering";

struct Options {
    std::string Actions; // the file
    int64_t Steps = 0;   // maximum in an episode
    bool Repeat = false; // actions may be repeated
    bool Print = false;  // the actions that were used, to stderr
    bool IR2Vec = false; // observe the embedding, too
};

// A pipeline; none: the action ends the episode.
using Passes = std::optional<ModulePassManager>;

// One module's sequence of actions.
class Phases final : public shmbridge::Environment {
public:
    Phases(Module &M, ModuleAnalysisManager &MAM, std::vector<Passes> &Actions, const Options &Opts)
        : M(M), MAM(MAM), Actions(Actions), Opts(Opts), Used(Actions.size()) {}

    std::vector<int64_t> Chosen; // the actions, in order
    std::string Wrong;           // with the model's last action

    void reset() override { observe(); }

    void step(const shmbridge::Action &Chose) override {
        size_t I = Chose.index;
        if (I >= Actions.size() || !allowed(I)) {
            Wrong = "the model chose action " + std::to_string(Chose.index) +
                    ": expected one that action_mask allows";
            return stop(SHMB_MODEL);
        }
        Chosen.push_back(I);
        Used[I]++;
        if (!Actions[I]) return set_done();
        double Before = M.getInstructionCount();
        Actions[I]->run(M, MAM);
        add_reward(std::log((Before + 1) / (M.getInstructionCount() + 1.0)));
        if (int64_t(Chosen.size()) == Opts.Steps) return set_done();
        observe();
    }

private:
    bool allowed(size_t I) const { return Opts.Repeat || !Used[I]; }

    void observe() {
        shmbridge::Runner &R = next_agent();
        auto &FAM = MAM.getResult<FunctionAnalysisManagerModuleProxy>(M).getManager();
        R.populate({{"counters", countersOf(M, FAM)}, {"used", Used}});
        auto Mask = R.feature<int8_t>("action_mask", {int64_t(Actions.size())});
        for (size_t I = 0; I < Mask.size(); ++I) Mask[I] = allowed(I);
        if (Opts.IR2Vec) embed(R);
    }

    // "ir2vec": the sum of the functions' embeddings.
    void embed(shmbridge::Runner &R) {
        const ir2vec::Vocabulary &Vocabulary = MAM.getResult<IR2VecVocabAnalysis>(M);
        if (!Vocabulary.isValid()) return; // LLVM has printed the reason
        std::vector<float> Sum(Vocabulary.getDimension());
        for (const Function &F : M) {
            if (F.isDeclaration()) continue;
            auto Embedder = ir2vec::Embedder::create(IR2VecKind::Symbolic, F, Vocabulary);
            const ir2vec::Embedding E = Embedder->getFunctionVector();
            for (size_t I = 0; I < Sum.size(); ++I) Sum[I] += E[I];
        }
        R.populate({{"ir2vec", Sum}});
    }

    Module &M;
    ModuleAnalysisManager &MAM;
    std::vector<Passes> &Actions;
    const Options &Opts;
    std::vector<float> Used; // how often, by action
};

class PhaseOrdering : public PassInfoMixin<PhaseOrdering> {
public:
    PhaseOrdering(Options Opts, std::vector<Passes> Actions, ModulePassManager Oz)
        : Opts(std::move(Opts)), Actions(std::move(Actions)), Oz(std::move(Oz)) {
        Always.addPass(AlwaysInlinerPass());
    }

    PreservedAnalyses run(Module &M, ModuleAnalysisManager &MAM) {
        unsigned Before = M.getInstructionCount();
        std::vector<int64_t> Chosen;
        if (!std::getenv("SHMBRIDGE_URL")) {
            Oz.run(M, MAM);
        } else {
            Always.run(M, MAM);
            Chosen = ask(M, MAM);
        }
        if (Opts.Print) {
            errs() << Name << ": " << M.getSourceFileName() << ": actions";
            for (int64_t Number : Chosen) errs() << ' ' << Number;
            errs() << ": " << Before << " -> " << M.getInstructionCount() << " instructions\n";
        }
        return PreservedAnalyses::none();
    }

    static bool isRequired() { return true; }

private:
    std::vector<int64_t> ask(Module &M, ModuleAnalysisManager &MAM) {
        shmbridge::Runner Runner(nullptr);
        shmbridge::Agent Agent(Runner);
        Phases Environment(M, MAM, Actions, Opts);
        if (auto Episode = shmbridge::drive(Environment, {&Agent}); !Episode) {
            const std::string &Wrong = Environment.Wrong;
            WithColor::warning(errs(), Name)
                << M.getSourceFileName() << ": -Oz goes on after " << Environment.Chosen.size()
                << " actions: " << (Wrong.empty() ? Episode.message() : Wrong) << '\n';
            Oz.run(M, MAM);
        }
        return Environment.Chosen;
    }

    Options Opts;
    std::vector<Passes> Actions;
    ModulePassManager Oz;
    ModulePassManager Always; // `always_inline` is not a choice: LLVM obeys it at -O0, too
};

Expected<Options> parseOptions(StringRef Text) {
    Options Opts;
    for (StringRef Word : split(Text, ';')) {
        StringRef Value = Word;
        if (Value.consume_front("actions=")) Opts.Actions = Value.str();
        else if (Value.consume_front("steps=") && !Value.getAsInteger(10, Opts.Steps)) continue;
        else if (Word == "repeat") Opts.Repeat = true;
        else if (Word == "print") Opts.Print = true;
        else if (Word == "ir2vec") Opts.IR2Vec = true;
        else
            return createStringError("expected actions=FILE, steps=NUMBER, repeat, ir2vec or "
                                     "print, found '" +
                                     Word + "'");
    }
    if (Opts.Actions.empty() || Opts.Steps < 1)
        return createStringError(
            "expected phase-ordering<actions=FILE;steps=NUMBER>, with a NUMBER above 0");
    return Opts;
}

Expected<std::vector<Passes>> readActions(PassBuilder &PB, const std::string &File) {
    auto Text = MemoryBuffer::getFile(File, /*IsText=*/true);
    if (!Text) return createStringError(File + ": " + Text.getError().message());
    std::vector<Passes> Actions;
    SmallVector<StringRef> Lines;
    (*Text)->getBuffer().split(Lines, '\n');
    for (size_t Number = 0; Number < Lines.size(); ++Number) {
        StringRef Line = Lines[Number].split('#').first.trim();
        if (Line.empty()) continue;
        Passes &Added = Actions.emplace_back();
        if (Line == "stop") continue;
        if (Error E = PB.parsePassPipeline(Added.emplace(), Line))
            return createStringError(File + ":" + Twine(Number + 1) + ": expected a pipeline as " +
                                     "opt -passes= takes it: " + toString(std::move(E)));
    }
    if (Actions.empty())
        return createStringError(File + ": expected a pipeline in each line, found none");
    return Actions;
}

Error addPass(PassBuilder &PB, StringRef Text, ModulePassManager &MPM) {
    Expected<Options> Opts = parseOptions(Text);
    if (!Opts) return Opts.takeError();
    Expected<std::vector<Passes>> Actions = readActions(PB, Opts->Actions);
    if (!Actions) return Actions.takeError();
    ModulePassManager Oz = PB.buildPerModuleDefaultPipeline(OptimizationLevel::Oz);
    MPM.addPass(PhaseOrdering(std::move(*Opts), std::move(*Actions), std::move(Oz)));
    return Error::success();
}

void registerPass(PassBuilder &PB) {
    PB.registerPipelineParsingCallback(
        [&PB](StringRef Pass, ModulePassManager &MPM, ArrayRef<PassBuilder::PipelineElement>) {
            if (!Pass.consume_front(Name)) return false;
            if (!Pass.empty() && (!Pass.consume_front("<") || !Pass.consume_back(">")))
                return false;
            Error E = addPass(PB, Pass, MPM);
            if (!E) return true;
            WithColor::error(errs(), Name) << toString(std::move(E)) << '\n';
            return false;
        });
}

} // namespace

extern "C" LLVM_ATTRIBUTE_WEAK __attribute__((visibility("default"))) PassPluginLibraryInfo
llvmGetPassPluginInfo() {
    return {LLVM_PLUGIN_API_VERSION, Name, LLVM_VERSION_STRING, registerPass};
}
