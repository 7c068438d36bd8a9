"""A combination without a host: the model is a file in the runner's own process, made for each
question of a case so that it answers as the case's function does: what that gives back as it is, an
output gives back; anything else is a constant."""

import contextlib
import hashlib
import os
import time
from pathlib import Path

import numpy as np
from stage import Stage, kept
from support.processes import ticks_of

from shmbridge import TensorSpec

SAW = "_saw"  # ends the name of an output that gives back a feature
PLAIN = {"x": np.array([7], np.int64)}


class FileStage(Stage):
    """What cases are written against where a model is a file; subclasses write it."""

    files = {}  # by the runner's name and a digest of the model: URLs, the same for every language

    def begin(self, entry):
        super().begin(entry)
        self.question, self.seconds, self.specs, self.entered = {}, 0, None, Busy(self)
        self.url = None

    # ---- What has no host ----

    def start_host(self, **room):
        pass

    @contextlib.contextmanager
    def elsewhere(self, url, features=None, advice=None, **room):
        """A file has all the room there is. features: what it expects, whatever is asked."""
        self.specs = features
        yield
        self.specs = None

    def ready(self):
        if self.url is None:
            self.url = self._url_for(PLAIN)
        super().ready()

    def open(self, url):
        super().open(url)
        if self.seconds and self.opened:
            self.runner.do("deadline", self.seconds)

    def deadline(self, seconds):
        super().deadline(seconds)
        self.seconds = seconds

    # ---- Ask ----

    def _fill(self, features):
        self.url = self._url_for(features)
        self.question, self._seen = features, None
        super()._fill(features)

    def answer(self):
        found = super().answer()
        echo = all(isinstance(output, str) for output in self.outputs.values())
        if echo and len(self.outputs) == len(self.question):
            self._seen = {feature: found[name] for name, feature in self.outputs.items()}
        return found

    @property
    def seen(self):
        """What the last model got: where it did not give that back, another one that takes the same
        is asked to."""
        if self._seen is None and self.question:
            self.outputs = {name + SAW: name for name in self.question}
            self.url = self._file(self._inputs(self.question), self.outputs)
            super()._fill(self.question)
            self.runner.ask("evaluate", 0)
            self.answer()
        return self._seen or {}

    @seen.setter
    def seen(self, value):
        pass

    # ---- Make models ----

    def _inputs(self, features):
        if self.specs:
            return self.specs
        return [TensorSpec(name, value.dtype, value.shape) for name, value in features.items()]

    def _url_for(self, features):
        inputs, self.outputs = self._inputs(features), {}
        if hasattr(self.model, "go"):
            return self._file(inputs, endless=True)
        try:
            advice = self.model(features)
        except ValueError:
            return self._file(inputs, raises=True)
        self.sent = kept(advice)
        self.outputs = outputs = {}
        for name, value in (advice if isinstance(advice, dict) else {"advice": advice}).items():
            same = [feature for feature, given in features.items() if given is value]
            outputs[name + SAW if name in features else name] = (
                same[0] if same else np.asarray(value)
            )
        return self._file(inputs, outputs)

    def _file(self, inputs, outputs=None, **how):
        """The URL of a model. outputs: by name the input that each is, or its constant value."""
        model = self.made(inputs, outputs or {}, **how)
        key = self.combination.runner, hashlib.sha256(model).digest()
        if key not in self.files:
            url = self.new_url()
            self.write(model, Path(url.partition("://")[2]))
            self.files[key] = url
        return self.files[key]

    def made(self, inputs, outputs, endless=False, raises=False):
        """A file's bytes. endless: it never answers; raises: it asks for what an array does not
        have."""
        raise NotImplementedError

    def write(self, model, path):
        path.write_bytes(model)


class Busy:
    """Set when the runner computes, which nobody but the kernel sees."""

    def __init__(self, stage):
        self.stage, self.before = stage, 0

    def clear(self):
        self.before = ticks_of(self.stage.runner.pid)

    def wait(self, seconds):
        until = time.monotonic() + seconds
        while (
            ticks_of(self.stage.runner.pid) - self.before < 0.05 * os.sysconf("SC_CLK_TCK")
            and time.monotonic() < until
        ):
            time.sleep(0.01)
        return time.monotonic() < until
