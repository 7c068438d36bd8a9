"""A small network in PyTorch: one hidden layer of 16 units."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch


class Network(torch.nn.Module):
    """Inlines if the network's output is positive.

    Args:
        features: By name, int64[rows, 1].
        decisions: LLVM's: 0 or 1, [rows].
    """

    def __init__(self, features: Mapping[str, Any], decisions: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.names = sorted(features)
        x = self._logarithms(self._columns(features))
        self.register_buffer("mean", x.mean(0))
        self.register_buffer("scale", torch.where(x.std(0) > 0, x.std(0), 1))
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(len(self.names), 16, dtype=torch.float64),
            torch.nn.Tanh(),
            torch.nn.Linear(16, 1, dtype=torch.float64),
        )
        self._learn(self._columns(features), torch.as_tensor(decisions, dtype=torch.float64))

    def _learn(self, x: torch.Tensor, decisions: torch.Tensor) -> None:
        optimizer = torch.optim.Adam(self.layers.parameters(), 0.01)
        loss = torch.nn.BCEWithLogitsLoss()
        for _ in range(600):
            optimizer.zero_grad()
            loss(self._score(x), decisions).backward()
            optimizer.step()
        self.eval()

    def _columns(self, features: Mapping[str, Any]) -> torch.Tensor:
        return torch.cat([torch.as_tensor(features[name]) for name in self.names], dim=1)

    def _logarithms(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sign(x) * torch.log(1.0 + torch.abs(x).double())

    def _score(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers((self._logarithms(x) - self.mean) / self.scale)[:, 0]

    def forward(self, *features: torch.Tensor) -> torch.Tensor:
        """The ONNX model: from int64[1] for each feature, in the order of `names`, to int64[1]."""
        return (self._score(torch.stack(features, dim=1)) > 0).long()

    def decide(self, features: Mapping[str, Any]) -> Any:
        """1: inline, 0: leave; int64[rows]."""
        with torch.no_grad():
            return (self._score(self._columns(features)) > 0).long().numpy()

    def save(self, path: Path) -> None:
        """Writes an ONNX model: an input int64[1] for each feature, the output inlining_decision
        int64[1]."""
        example = tuple(torch.zeros(1, dtype=torch.int64) for _ in self.names)
        names = {"input_names": self.names, "output_names": ["inlining_decision"]}
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # names packages that it lacks
        torch.onnx.export(self, example, path, **names, external_data=False, verbose=False)
