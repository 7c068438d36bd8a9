"""Models of other libraries as policies: functions from a batch to a row of advice for each of its
requests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from inspect import signature
from typing import Any, TypeAlias

import numpy as np

from shmbridge._host.batch import Batch
from shmbridge.errors import InvalidError

Policy: TypeAlias = Callable[[Batch], Any]


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
