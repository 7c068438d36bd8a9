"""Training on whole compilations: corpora, tasks, scores and progress::

    train, held_out = Corpus.from_compile_commands("build/compile_commands.json").split(0.2)
    task = Task("clang-22 -Oz -c {module} -o {output}", llvm="inline", scores={"size": text_size})
    with Progress("training.csv", total=1000) as progress:
        modules = itertools.islice(train.sampler(seed=1), 1000)
        for episode in collect(policy, task, modules, progress=progress):
            episode.features["features"]        # float32[steps, ...]
            episode.advice["advice"]            # int64[steps]
            episode.reward
            progress.log(loss=loss)

Every end of a compiler is an `Outcome`, and none of its files or processes remain. Scores such as
`text_size` are in `shmbridge.training.scores`.
"""

from shmbridge.training._compilation import Outcome, OutcomeKind
from shmbridge.training._corpus import Corpus, Module, Sampler
from shmbridge.training._policies import evaluate
from shmbridge.training._progress import Progress
from shmbridge.training._task import Task, relative_reduction
from shmbridge.training._trajectories import Episode, candidate_rewards, collect
from shmbridge.training._workers import Workers

__all__ = [
    "Corpus",
    "Module",
    "Sampler",
    "Task",
    "Outcome",
    "OutcomeKind",
    "relative_reduction",
    "Workers",
    "collect",
    "candidate_rewards",
    "evaluate",
    "Episode",
    "Progress",
]
