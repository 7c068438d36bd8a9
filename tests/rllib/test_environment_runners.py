"""RLlib's environment runners over compilers, and machines that are lost."""

import os
import signal
import threading

import pytest
from support.processes import until

ray = pytest.importorskip("ray", reason="Ray pins its Gymnasium: bash tests/run --ray")

from ray.cluster_utils import Cluster  # noqa: E402
from ray.rllib.algorithms import PPOConfig  # noqa: E402
from ray.rllib.connectors.env_to_module import FlattenObservations  # noqa: E402
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner  # noqa: E402
from ray.tune.registry import register_env  # noqa: E402

NODE = {"num_cpus": 1, "object_store_memory": 100 << 20}


@pytest.fixture
def config(compilers):
    """config(runners=0, **context): PPO over two compilers an environment runner."""

    def make(runners=0, **context):
        register_env(compilers.name, compilers)
        config = PPOConfig().environment(compilers.name, env_config=context)
        config.env_runners(
            num_env_runners=runners,
            num_envs_per_env_runner=2,
            gym_env_vectorize_mode="vector_entry_point",
            env_to_module_connector=lambda env, spaces, device: FlattenObservations(),
        )
        config.training(train_batch_size_per_learner=64, minibatch_size=64, num_epochs=1)
        return config.debugging(seed=1)

    return make


@pytest.fixture
def cluster():
    made = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    ray.init(made.address)
    yield made
    ray.shutdown()
    made.shutdown()


def test_an_episode_is_a_compilation(config, left):
    runner = SingleAgentEnvRunner(config=config())
    episodes = runner.sample(num_episodes=4, random_actions=True)
    assert len(episodes) >= 4
    for episode in episodes:
        assert episode.is_terminated and len(episode.observations) == len(episode) + 1
        assert list(episode.observations[0]) == [1] + [0] * 7  # its first program
    runner.stop()
    until(lambda: left() == (set(), set()))


def test_a_compiler_that_fails_ends_its_episode_alone(config):
    runner = SingleAgentEnvRunner(config=config(then="exit 3"))
    episodes = runner.sample(num_episodes=2, random_actions=True)
    assert all(episode.is_truncated for episode in episodes)
    assert "exit status" in episodes[0].infos[-1]["error"] and episodes[0].infos[-1]["exit"] == 3
    runner.stop()


@pytest.mark.timeout(600)
def test_training_goes_on_where_a_machine_is_lost_and_where_it_comes_back(config, cluster, left):
    second = cluster.add_node(**NODE)
    algorithm = config(runners=2).build_algo()  # a CPU each: one on each machine
    group = algorithm.env_runner_group
    algorithm.train()
    places = group.foreach_env_runner(
        lambda runner: (ray.get_runtime_context().get_node_id(), os.getpid()),
        local_env_runner=False,
    )
    here = ray.get_runtime_context().get_node_id()
    (lost,) = [pid for node, pid in places if node != here]
    before, bridges = left()
    assert len(bridges) == 2

    def lose():
        cluster.remove_node(second, allow_graceful=False)
        os.kill(lost, signal.SIGKILL)

    threading.Timer(0.1, lose).start()
    until(lambda: algorithm.train() and group.num_healthy_remote_workers() == 1, 120)
    until(lambda: len(left()[1]) == 1)
    cluster.add_node(**NODE)
    until(lambda: algorithm.train() and group.num_healthy_remote_workers() == 2, 240)
    assert len(left()[1]) == 2
    algorithm.stop()
    until(lambda: left() == (set(), set()))
