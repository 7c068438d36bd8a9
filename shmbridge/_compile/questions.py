"""Random inputs for a model."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from shmbridge._compile.toolchain import Built
from shmbridge._compile.wrap import Port

FAR = (4, 16, 64, 256, 1000)  # also of integers; one that is a length must not take all memory
OPEN = (2, 1, 3)  # what an open dimension is, in turns
SCALES = (1, 1e3, 1e6)  # of floats: a threshold may be far from 0
Inputs = Sequence[Any]  # an array for each port


def questions(
    built: Built, seed: int, change: Callable[[Any], Any] = np.asarray
) -> Iterator[Callable[[], Inputs]]:
    """Endless inputs as models get them. An integer may be an index or a length: below 2, then up
    to each size of an input, and as far as the model accepts, which refuses the others."""
    rng, ports, turn = np.random.default_rng(seed), built.inputs, iter(range(1 << 30))

    def inputs(low: int, high: int) -> Inputs:
        at = next(turn)
        scale, size = SCALES[at % len(SCALES)], OPEN[at % len(OPEN)]
        return [change(_random(rng, port, high, low, scale, size)) for port in ports]

    yield from [partial(inputs, 0, 2)] * 3
    sizes = {n + more for port in ports for n in port.dims if n > 1 for more in (0, 1)}
    bounds = [(0, 2), *((0, size) for size in sorted(sizes))]
    bounds += [(low, far) for far in FAR for low in (0, -far)]
    while True:
        yield partial(inputs, *bounds[rng.integers(len(bounds))])


def _random(
    rng: np.random.Generator,
    port: Port,
    bound: int,
    low: int = 0,
    scale: float = 1,
    open_size: int = OPEN[0],
) -> Any:
    shape = tuple(open_size if size < 0 else size for size in port.dims)
    if "float" in port.dtype:
        scale = min(scale, 1e3) if port.dtype == "float16" else scale
        return np.asarray(rng.standard_normal(shape) * scale).astype(dtype_of(port))
    most = 1 if port.dtype == "bool" else np.iinfo(port.dtype).max
    low = max(low, 0 if port.dtype == "bool" else np.iinfo(port.dtype).min)
    return np.asarray(rng.integers(low, min(bound, most + 1), shape)).astype(port.dtype)


def dtype_of(port: Port) -> Any:
    if port.dtype != "bfloat16":
        return np.dtype(port.dtype)
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16)
