"""A hand-written host for compilers such as c/ask.c: it keeps requests, answers, and reports
errors.

python model.py [NAME]
"""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt

import shmbridge


def decide(features: npt.NDArray[np.float32]) -> int:
    """1: inline, 0: call. features: float32[16], what ask.c counts; [1] are the statements."""
    return int(features[1] < 8)


def main(name: str = "demo") -> None:
    """Answers until Ctrl-C, or until there was no runner for ten seconds."""
    seen: list[tuple[str, npt.NDArray[np.float32], int]] = []
    spec = shmbridge.TensorSpec("features", np.float32, (16,))
    with shmbridge.Host(name, until_idle=10) as host:
        print(f"serving at {host.url}", flush=True)
        for request in host:
            features = request["features"]  # in shared memory, while it is kept
            if not spec.matches(features.dtype, features.shape):
                request.fail(f"this model wants {spec}, not {request.signature}")
                continue
            advice = decide(features)
            seen.append((request["function"], features, advice))
            request.reply(advice)
            if len(seen) >= 1000:
                mean = np.mean([features for _, features, _ in seen], axis=0)
                print(
                    f"{sum(advice for *_, advice in seen)} of {len(seen)} inlined; {mean[1]:.1f} statements each"
                )
                seen.clear()


if __name__ == "__main__":
    main(*sys.argv[1:])
