"""What python:// calls in the runner's process: asks the case's own model, in the test's."""

from shmbridge._runner.runner import TypedRunner


class Proxy:
    def __init__(self, host):
        self.runner = TypedRunner(f"shm://{host}", connect_timeout=2.0)

    def __call__(self, features):
        self.runner.evaluate(features)
        return self.runner.advice

    def close(self):
        self.runner.close()
