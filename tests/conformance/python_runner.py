"""The Python runner side: the lines of tests/cross/scripted_runner.c that the cases use, over
shmbridge.connect. Where Python gives a plain number, whose dtype is gone, it prints "| NAME number
REPR"."""

import sys

import numpy as np
import wire

import shmbridge
from shmbridge import Ragged
from shmbridge._values.tensor import StringList

DTYPES = {"i64": np.int64, "i32": np.int32, "f64": np.float64, "f32": np.float32}


class Script:
    def __init__(self, connect):
        self.connect = connect
        self.runner, self.features, self.spill = None, {}, ""

    def open(self, url):
        self.close()
        self.runner, self.tickets = self.connect(url), []
        return "0"

    def close(self):
        if self.runner is not None:
            self.runner.close()
        self.runner = None

    def deadline(self, seconds):
        self.runner.set_deadline(float(seconds))

    def feature(self, name, dtype, rank, *rest):
        shape = tuple(map(int, rest[: int(rank)]))
        self.features[name] = np.frombuffer(
            wire.to_bytes(rest[-1]), wire.DTYPES[int(dtype)]
        ).reshape(shape)

    def string(self, name, data):
        self.features[name] = wire.to_text(wire.to_bytes(data))

    def strings(self, name, count, *texts):
        self.features[name] = StringList(wire.to_text(wire.to_bytes(text)) for text in texts)

    def ragged(self, name, dtype, rows, *rest):
        n = int(rows)
        offsets = np.cumsum([0, *map(int, rest[:n])])
        shape = tuple(map(int, rest[n + 1 : -1]))
        self.features[name] = Ragged(
            np.frombuffer(wire.to_bytes(rest[-1]), wire.DTYPES[int(dtype)]).reshape(shape), offsets
        )

    def evaluate(self, dtype):
        features, self.features = self.features, {}
        self.runner.evaluate(features, dtype=wire.DTYPES[int(dtype)] if int(dtype) else None)
        return self.advice()

    def send(self, dtype):
        features, self.features = self.features, {}
        want = wire.DTYPES[int(dtype)] if int(dtype) else None
        self.tickets.append(self.runner.send(features, dtype=want))
        return f"0 {len(self.tickets) - 1}"

    def receive(self, index):
        self.runner.receive(self.tickets[int(index)])
        return self.advice()

    def advice(self):
        return "".join(
            [
                "0",
                *(f" | {self.printed(name, value)}" for name, value in self.runner.advice.items()),
            ]
        )

    def scalar(self, how):
        features, self.features = self.features, {}
        advice = np.asarray(self.runner.evaluate(features, dtype=DTYPES[how]))
        try:
            return f"0 {advice.item()!r}"
        except ValueError as error:  # Python has no call of its own for one element
            return f"{shmbridge.MismatchError.status} {error}"

    def printed(self, name, value):
        if isinstance(value, (bool, int, float)):
            return f"{name} number {value!r}"
        return wire.printed(name, value, self.spill)

    def obey(self, verb, *words):
        if verb == "spill":
            self.spill = words[0]
            return ""
        if verb in DTYPES:
            return self.scalar(verb)
        return getattr(self, verb)(*words) or ""


def main(connect=shmbridge.connect):
    script = Script(connect)
    for line in sys.stdin:
        try:
            answer = script.obey(*line.split())
        except shmbridge.ShmbridgeError as error:
            answer = f"{error.status} {error}"
        except KeyboardInterrupt:
            answer = f"{shmbridge.InterruptedCallError.status} KeyboardInterrupt"
        print(answer.replace("\n", " "), flush=True)
    script.close()


if __name__ == "__main__":
    main()
