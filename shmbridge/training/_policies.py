"""Trained models of other libraries, evaluated as policies."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from inspect import signature
from typing import Any

import numpy as np

from shmbridge import Batch
from shmbridge.errors import InvalidError
from shmbridge.training._corpus import Corpus, Module
from shmbridge.training._task import Task
from shmbridge.training._trajectories import Policy, candidate_rewards


def evaluate(model: Any, task: Task, modules: Sequence[Module], **options: Any) -> dict[str, float]:
    """Compiles each module once with a trained model, for example those of a test set::

        model = PPO.load("ppo.zip")
        print(np.nanmean([*evaluate(model, task, held_out).values()]))

    Args:
        model: One of these:

            - A policy, as for `collect`: a function of a `Batch`.
            - A model of Stable-Baselines3 or sb3-contrib, or any other with
              `predict(observation, deterministic=True)`, which returns a pair: the actions, a row
              for each request, and something that is ignored. The observation is a dict of arrays
              [rows, ...], with the dtypes that the compiler sends, of the features in the model's
              `observation_space`, or of all if it has none. A `VecNormalize` and an "action_mask"
              are used as in training.
            - A `torch.nn.Module`, as for `export_onnx`: its forward takes a dict of tensors
              [rows, ...] by feature, on the module's device, and returns a tensor [rows, ...], or a
              dict of these by name. It is in evaluation mode meanwhile.
        modules: The modules to compile: at least one, and their names differ.
        task: As in `collect`.
        options: num_workers, reward, progress and the host's options, as in `collect`.

    Returns:
        Each module's reward, by its name. NaN as in `Episode.reward`.

    Raises:
        InvalidError: The model is none of these, there are no modules or two of one name, or an
            option is invalid.
        Exception: An exception of the model or the reward.
    """
    modules = Corpus(modules)
    with policy_of(model) as policy:
        rewards = candidate_rewards(lambda batch, _rows: policy(batch), 1, task, modules, **options)
    names = [module.name for module in modules]
    return dict(zip(names, rewards[0].tolist(), strict=True))


@contextmanager
def policy_of(model: Any) -> Iterator[Policy]:
    """The policy of a model, as `evaluate` describes it."""
    torch = sys.modules.get("torch")
    if "deterministic" in _parameters(getattr(model, "predict", None)):
        yield partial(_predict, model)
    elif torch and isinstance(model, torch.nn.Module):
        with evaluating(model):
            yield partial(_forward, model, torch)
    elif callable(model):
        yield model
    else:
        raise InvalidError(
            "expected a function of a Batch, a torch.nn.Module, or a model with "
            f"predict(observation, deterministic=True), found {model!r}"
        )


@contextmanager
def evaluating(module: Any) -> Iterator[None]:
    """A torch.nn.Module as in deployment: no dropout, and no statistics of batches."""
    training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(training)


def _parameters(function: Any) -> Mapping[str, Any]:
    return signature(function).parameters if callable(function) else {}


def _predict(model: Any, batch: Batch) -> Any:
    """The best actions of a model of Stable-Baselines3, or of one that is used like it."""
    space = getattr(model, "observation_space", None)
    known = getattr(space, "spaces", batch)  # of a Dict: a compiler may send more
    observation = {name: batch[name] for name in known}
    masks = {}
    if "action_mask" in observation and "action_masks" in _parameters(model.predict):
        masks["action_masks"] = observation["action_mask"]
    if normalized := getattr(model, "get_vec_normalize_env", lambda: None)():
        observation = normalized.normalize_obs(observation)
    return model.predict(observation, deterministic=True, **masks)[0]


def _forward(module: Any, torch: Any, batch: Batch) -> Any:
    """The advice of a module for tensors by feature; texts and lists are left out."""
    device = next(module.parameters(), torch.empty(0)).device
    arrays = {name: each for name, each in batch.items() if isinstance(each, np.ndarray)}
    with torch.inference_mode():
        advice = module({n: torch.tensor(each, device=device) for n, each in arrays.items()})
    if isinstance(advice, Mapping):
        return {name: each.cpu().numpy() for name, each in advice.items()}
    return advice.cpu().numpy()
