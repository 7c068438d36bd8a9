"""Questions in threads."""

from shmbridge import connect


def evaluating(in_thread, host, features, **options):
    """The runner's evaluate in a thread, on a connection of its own."""

    def ask():
        with connect(host.url) as runner:
            return runner.evaluate(features, **options)

    return in_thread(ask)


# What a client of ML-Compiler-Bridge asks: x=11.
FIRST = (
    b'{"features":[{"name":"x","type":"int32_t","port":6020,"shape":[1]}]}\n'
    + bytes([11, 0, 0, 0])
    + b"\n"
)
