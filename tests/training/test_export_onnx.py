"""What was learnt becomes an ONNX file in one call: it takes what the compiler sends and gives what
the model gives."""

import contextlib
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from shmbridge import InvalidError, UnsupportedError, connect

torch = pytest.importorskip("torch", reason="its models are exported")
pytest.importorskip("onnxscript", reason="PyTorch exports with it")
pytest.importorskip("onnxruntime", reason="it runs what was exported")

export_onnx = pytest.importorskip("shmbridge.training.torch").export_onnx

SOURCE = """
int g(int);
static int f(int x) {
    int s = 0;
    for (int i = 0; i < x; i++) s += g(i) * x + g(s) + g(x);
    return s;
}
int a(int *x) {
    int s = 0;
    for (int i = 0; i < 30; i++) s += f(x[i]) * g(x[i + 1]) + x[i + s];
    return s;
}
"""
FEATURES = {"counts": np.zeros(6, np.int64), "x": np.zeros(2, np.float32), "hot": np.zeros(1, bool)}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(9, 8), torch.nn.Dropout(), torch.nn.Linear(8, 3)
        )

    def forward(self, rows):
        return self.layers(torch.cat([rows[name].float() for name in FEATURES], dim=1))


def ask(url, question):
    with connect(url) as runner:
        return np.asarray(runner.evaluate(question))


QUESTION = {"counts": np.arange(6), "x": np.ones(2, np.float32), "hot": np.array([True])}


def test_an_example_with_rows_is_told_the_shapes(tmp_path):
    with pytest.raises(RuntimeError) as error:
        export_onnx(Model(), tmp_path / "m.onnx", {**FEATURES, "x": np.zeros((1, 2), np.float32)})
    assert "x: [1, 1, 2], hot: [1, 1]. An example is one question" in error.value.__notes__[0]


def test_a_model_gives_the_same_in_the_compilers_process(tmp_path):
    model, path = Model(), tmp_path / "m.onnx"
    export_onnx(model, path, FEATURES)
    assert model.training
    rows = {name: torch.from_numpy(value)[None] for name, value in QUESTION.items()}
    expected = model.eval()(rows)[0].detach().numpy()
    assert ask(f"onnx://{path}", QUESTION) == pytest.approx(expected, abs=1e-5)


def test_an_export_compiles_to_a_library(tmp_path):
    export_onnx(Model(), tmp_path / "m.onnx", FEATURES)
    command = [Path(sys.executable).with_name("shmbridge"), "compile", "m.onnx", "-o", "m.so"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    urls = f"onnx://{tmp_path}/m.onnx", f"aot://{tmp_path}/m.so"
    assert ask(urls[0], QUESTION) == pytest.approx(ask(urls[1], QUESTION), abs=1e-5)


def test_advice_may_have_names(tmp_path):
    class Two(Model):
        def forward(self, rows):
            logits = super().forward(rows)
            return {"logits": logits, "value": logits.sum(dim=1)}

    export_onnx(Two(), tmp_path / "m.onnx", FEATURES)
    with connect(f"onnx://{tmp_path}/m.onnx") as runner:
        advice = runner.evaluate(QUESTION)
    assert advice["value"] == pytest.approx(np.sum(advice["logits"]), abs=1e-5)


def test_a_model_of_what_is_not_negative_is_checked(tmp_path):
    class Logarithm(Model):
        def forward(self, rows):
            return torch.log1p(rows["x"])

    class Nothing(Model):
        def forward(self, rows):
            return rows["x"] * float("nan")

    features = {"x": FEATURES["x"]}
    export_onnx(Logarithm(), tmp_path / "m.onnx", features)
    with pytest.raises(InvalidError, match="expected a model that gives numbers"):
        export_onnx(Nothing(), tmp_path / "n.onnx", features)


def test_a_model_that_its_file_does_not_give_is_refused(tmp_path):
    class Random(Model):
        def forward(self, rows):
            return super().forward(rows) + torch.rand(1)

    class Leaky(Model):
        def forward(self, rows):
            slope = 0.2 if torch.onnx.is_in_onnx_export() else 0.1
            return torch.nn.functional.leaky_relu(rows["x"], slope)

    for model in Random(), Leaky():
        with pytest.raises(InvalidError, match=r"(?s)the ONNX file: .*: expected a model"):
            export_onnx(model, tmp_path / "m.onnx", FEATURES)
    assert list(tmp_path.iterdir()) == []


# ---- Stable-Baselines3 ----


@pytest.fixture
def sb3():
    pytest.importorskip("stable_baselines3", reason="its models are exported")
    return pytest.importorskip("shmbridge.envs.sb3")


@pytest.fixture
def env():
    gymnasium = pytest.importorskip("gymnasium")
    from gymnasium import spaces

    class Env(gymnasium.Env):
        observation_space = spaces.Dict(
            {"x": spaces.Box(-9, 9, (4,), np.float32), "action_mask": spaces.MultiBinary(3)}
        )
        action_space = spaces.Discrete(3)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            x = 100 * self.np_random.random(4).astype(np.float32)
            return {"x": x, "action_mask": np.array([1, 0, 1], np.int8)}, {}

        def step(self, action):
            return self.reset()[0], float(action), True, False, {}

        def action_masks(self):
            return np.array([True, False, True])

    return Env


def actions(path, count=20):
    """Questions, and a file's actions."""
    random, mask = np.random.default_rng(5), np.array([1, 0, 1])
    with connect(f"onnx://{path}") as runner:
        for _ in range(count):
            x = 100 * random.random(4).astype(np.float32)
            yield {"x": x, "action_mask": mask}, runner.evaluate({"x": x, "action_mask": mask > 0})


@pytest.mark.parametrize("name", ["PPO", "A2C", "DQN"])
def test_an_algorithm_and_its_file_take_the_same_actions(sb3, env, name, tmp_path):
    import stable_baselines3
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    normal = VecNormalize(DummyVecEnv([env]), norm_obs_keys=["x"])
    model = getattr(stable_baselines3, name)("MultiInputPolicy", normal, seed=1)
    model.learn(20) if name != "PPO" else normal.reset()
    sb3.export_onnx(model, tmp_path / "m.onnx")
    for question, action in actions(tmp_path / "m.onnx"):
        expected, _ = model.predict(normal.normalize_obs(question), deterministic=True)
        assert isinstance(action, int) and action == expected


def test_a_mask_is_part_of_the_file(sb3, env, tmp_path):
    MaskablePPO = pytest.importorskip("sb3_contrib", reason="it has MaskablePPO").MaskablePPO
    model = MaskablePPO("MultiInputPolicy", env(), seed=1)
    sb3.export_onnx(model, tmp_path / "m.onnx")
    for question, action in actions(tmp_path / "m.onnx"):
        masks = question["action_mask"].astype(bool)
        expected, _ = model.predict(question, deterministic=True, action_masks=masks)
        assert action == expected != 1


def test_a_number_as_an_action_is_a_float32(sb3, env, tmp_path):
    from gymnasium import spaces
    from stable_baselines3 import PPO

    env.action_space = spaces.Box(-0.001, 0.001, (1,))  # so that some are cut off
    model = PPO("MultiInputPolicy", env(), seed=1)
    sb3.export_onnx(model, tmp_path / "m.onnx")
    for question, action in actions(tmp_path / "m.onnx"):
        expected, _ = model.predict(question, deterministic=True)
        assert action.dtype == np.float32 and action == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("decision", ["inline", "evict", "priority"])
def test_a_stock_clang_takes_the_decisions_of_a_file(sb3, decision, name, tmp_path):
    if shutil.which("clang-22") is None:
        pytest.skip("no clang-22")
    from gymnasium import spaces
    from stable_baselines3 import PPO

    from shmbridge.training import Corpus, Task, Workers

    (tmp_path / "f.c").write_text(SOURCE)
    corpus = Corpus.from_sources(tmp_path / "f.c")
    task = Task("clang-22 -O2 -c {module} -o {output}", llvm=decision)
    actions = {"inline": 2, "evict": 33, "priority": spaces.Box(0, 9, (1,))}[decision]
    workers = Workers(task, corpus.sampler(1))
    with contextlib.closing(
        sb3.CompilerVecEnv(name, 1, actions=actions, workers=workers, timeout=60)
    ) as env:
        model = PPO("MultiInputPolicy", env, seed=1)
        if decision == "evict":  # the one that asks may always be evicted
            torch.nn.init.zeros_(model.policy.action_net.weight)
            model.policy.action_net.bias.data[-1] = 1
    sb3.export_onnx(model, tmp_path / "m.onnx")
    outcome = task.run(corpus[0], f"onnx://{tmp_path}/m.onnx")
    assert (outcome.kind, outcome.defaulted) == ("ok", 0)


def test_other_actions_are_refused(sb3, tmp_path):
    from stable_baselines3 import PPO

    with pytest.raises(UnsupportedError, match="expected a model with MultiInputPolicy"):
        sb3.export_onnx(PPO("MlpPolicy", "Pendulum-v1"), tmp_path / "m.onnx")


# ---- Callback ----


def test_a_callback_reports_episodes_and_a_row_for_each_rollout(sb3, env, tmp_path):
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import DummyVecEnv

    from shmbridge.training import Progress

    model = PPO("MultiInputPolicy", DummyVecEnv([env]), n_steps=16, batch_size=16, n_epochs=1)
    with Progress(tmp_path / "ppo.csv", total=40) as progress:
        model.learn(1000, callback=sb3.TrainingCallback(progress))
    assert progress.episodes == 40 and len(progress.rows) == 2
    assert [row["steps"] for row in progress.rows] == [16, 32] and "train/loss" in progress.rows[1]
