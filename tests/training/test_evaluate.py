"""Held-out modules compiled with a trained model: a function, a model with the predict of
Stable-Baselines3, a module of PyTorch."""

import numpy as np
import pytest

from shmbridge import InvalidError
from shmbridge.training import candidate_rewards, evaluate

pytestmark = pytest.mark.timeout(120)

# Asks twice; the output is as many bytes as the advice says in all. Module b fails.
ASKS = """
import os
import numpy as np
total = 10
if "b.txt" in module: sys.exit(1)
if os.environ.get("SHMBRIDGE_URL"):
    total = 0
    with connect() as runner:
        for step in range(2):
            question = {"x": np.float32([step, 1]), "action_mask": np.array([True, True, step < 1])}
            total += int(runner.evaluate({**question, "extra": 1, "name": "text"}))
open(output, "w").write("x" * total)
"""


@pytest.fixture
def found(py, corpus):
    """found(model): evaluate's bytes of each module's output."""
    task = py(ASKS, scores={"size": lambda path: path.stat().st_size})

    def run(model):
        return evaluate(model, task, corpus, reward=lambda outcome, _: outcome.scores["size"])

    return run


def expect(rewards, value):
    assert list(rewards) == ["a.txt", "b.txt", "c.txt"] and np.isnan(rewards["b.txt"])
    assert rewards["a.txt"] == rewards["c.txt"] == value


class Space:
    def __init__(self, **spaces):
        self.spaces = spaces


class Model:
    """As Stable-Baselines3's: chooses the greatest action that it knows, of those allowed."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        assert deterministic and type(observation) is dict
        self.observation = observation
        return 2 + 0 * observation["x"][:, 1].astype(int), None


class Masked(Model):
    observation_space = Space(x=None, action_mask=None)

    def predict(self, observation, state=None, deterministic=False, action_masks=None):
        super().predict(observation, deterministic=deterministic)
        return np.where(action_masks, [[0, 1, 2]], 0).max(axis=1), None


def test_a_function(found):
    expect(found(lambda batch: [3] * len(batch)), 6)


def test_a_module_that_fails_has_no_reward_and_others_the_tasks(py, corpus):
    task = py(ASKS, scores={"size": lambda path: path.stat().st_size})
    rewards = evaluate(lambda batch: batch["x"][:, 0], task, [corpus["a.txt"], corpus["c.txt"]])
    same = candidate_rewards(
        lambda batch, _: batch["x"][:, 0], 1, task, [corpus["a.txt"], corpus["c.txt"]]
    )
    assert list(rewards.values()) == same[0].tolist() == [pytest.approx(1 - 1.01 / 10.01)] * 2


def test_modules_of_one_name_are_refused(py, corpus):
    with pytest.raises(InvalidError, match="names that differ, found 'a.txt' twice"):
        evaluate(lambda batch: batch["x"][:, 0], py(ASKS), [*corpus, corpus["a.txt"]])


def test_a_model_with_predict_sees_every_feature_unless_its_space_names_some(found):
    model = Model()
    expect(found(model), 4)
    assert model.observation.keys() == {"x", "action_mask", "extra", "name"}
    model.observation_space = Space(x=None)
    expect(found(model), 4)
    assert model.observation.keys() == {"x"} and model.observation["x"].dtype == np.float32


def test_masks_and_statistics_are_used_as_in_training(found):
    expect(found(Masked()), 3)

    class Normalized(Model):
        def get_vec_normalize_env(self):
            return self

        def normalize_obs(self, observation):
            return {"x": observation["x"] * 100}

    model = Normalized()
    expect(found(model), 4)
    assert model.observation["x"][0, 1] == 100


@pytest.fixture
def torch(monkeypatch, tmp_path):
    """PyTorch, whose threads would compete, and whose caches lie elsewhere."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    return torch


def test_a_module_of_pytorch(found, torch):

    class Network(torch.nn.Module):
        def __init__(self, named):
            super().__init__()
            self.named, self.dropout = named, torch.nn.Dropout(0.99)
            self.weights = torch.nn.Parameter(torch.tensor([1.0, 4.0]))

        def forward(self, features):
            assert features.keys() == {"x", "action_mask", "extra"}
            advice = self.dropout(features["x"] * self.weights).sum(dim=1)
            return {"advice": advice} if self.named else advice

    for named in (False, True):
        network = Network(named)
        expect(found(network), 9)
        assert network.training


@pytest.mark.usefixtures("torch")
def test_a_model_of_stable_baselines3(found):
    sb3 = pytest.importorskip("stable_baselines3")
    from gymnasium import Env, spaces

    class Nothing(Env):
        """Only for its spaces."""

        observation_space = spaces.Dict(
            {"x": spaces.Box(-np.inf, np.inf, (2,)), "action_mask": spaces.MultiBinary(3)}
        )
        action_space = spaces.Discrete(3)

    model = sb3.PPO("MultiInputPolicy", Nothing(), device="cpu", seed=0)
    actions = [
        model.predict(
            {"x": np.float32([step, 1]), "action_mask": np.array([1, 1, step < 1])},
            deterministic=True,
        )[0]
        for step in range(2)
    ]
    expect(found(model), int(sum(actions)))


@pytest.mark.parametrize("model", [1, "ppo.zip", None])
def test_what_is_no_model_is_an_error(found, model):
    with pytest.raises(InvalidError, match="expected a function of a Batch, .* found"):
        found(model)
