"""ML-Compiler-Bridge's protocol, "pipe:///PATH?serdes=NAME", for its unmodified compilers and for
our pipe:// runners."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from shmbridge import serdes
from shmbridge._native import ffi, lib
from shmbridge._urls import plugins
from shmbridge._urls.options import split
from shmbridge._values import dtypes
from shmbridge.errors import InvalidError, raise_status, undone_by
from shmbridge.hosts import PipeBackedHost, PipeBackedRequest, PipePair

# As ML-Compiler-Bridge sends Python's numbers.
_AS_C = {int: np.dtype(np.int32), float: np.dtype(np.float32)}
_PLAIN = (*_AS_C, list, tuple)


class PipeRequest(PipeBackedRequest):
    """One question. If the reply goes to a compiler of ML-Compiler-Bridge as a bitstream, plain
    Python numbers and lists of them have its types: an int is an int32, a float the nearest
    float32. numpy's scalars and arrays keep their dtype."""

    __slots__ = ()

    def reply(self, *args: Any, **named: Any) -> bool:
        """As `Request.reply`.

        Raises:
            InvalidError: Also for a plain number that int32 or float32 has no room for.
        """
        plain = named or (args and isinstance(args[0], _PLAIN))  # numpy's values stay what they are
        if plain and self._host._narrows():
            args = tuple(narrowed("advice", value) for value in args)
            named = {name: narrowed(name, value) for name, value in named.items()}
        return super().reply(*args, **named)


class PipeHost(PipeBackedHost):
    """One pair of named pipes, PATH.in and PATH.out, for one compiler at a time.

    A compiler of ML-Compiler-Bridge expects its advice in a certain dtype but, with bitstream,
    cannot send that dtype. So the model returns an int for `evaluate<int>`, numpy.int64 for long, a
    float for float, numpy.float64 for double. Alternatively, advice=[TensorSpec("advice",
    numpy.int64)] converts the model's result, and refuses values that are not exact in that dtype.
    Runners of shmbridge receive the same as over shared memory.

    Without a default advice, shmbridge's runners get an error if the model raises. Other clients
    get a frame whose length has its top bit set; ML-Compiler-Bridge's clients abort then.

    Args:
        url: "pipe:///PATH". ?serdes=NAME selects a SerDes, by default "bitstream".
        default_advice: A number, also as an option of the URL. It is the answer if the model
            raises, or the question or the advice cannot be read, with one line on stderr.
        options: As in `Host`.
    """

    _request_type = PipeRequest

    def __init__(
        self, url: str, *, default_advice: float | str | None = None, **options: Any
    ) -> None:
        where, chosen = split(serdes.resolve(url).partition("://")[2])
        self._serdes = chosen.pop("serdes", "bitstream")
        default_advice = chosen.pop("default_advice", default_advice)
        if chosen or not where or "\0" in where:
            raise InvalidError(
                f"{url!r}: expected pipe:///PATH, with no option but default_advice=, serdes=NAME "
                "and its own"
            )
        super().__init__(url, [PipePair(where, "frames", self._serdes)], **options)
        if default_advice is not None:
            text = str(default_advice)
            with undone_by(self.close):
                status = lib.shmb_pipe_server_set_default(
                    self._server, plugins.c_text(text), self._default_dtype(text)
                )
                if status:
                    raise_status(status, self._why())

    def _default_dtype(self, text: str) -> int:
        """What the model's own advice of that number would be."""
        specs = list((self._advice or {}).values())
        if len(specs) > 1:
            raise InvalidError(
                f"{self.url}: default_advice= is one number, and the advice has {len(specs)} fields"
            )
        if specs:
            return dtypes.code_of(specs[0].dtype, specs[0].name)
        if self._serdes != "bitstream":
            return int(lib.SHMB_ANY)
        return int(lib.SHMB_FLOAT32 if set(text) & set(".eE") else lib.SHMB_INT32)

    def _narrows(self) -> bool:
        info = ffi.new("shmb_conversation_info *")
        lib.shmb_pipe_server_info(self._server, 0, info)
        return self._serdes == "bitstream" and self._advice is None and not info.typed


def narrowed(name: str, value: Any) -> Any:
    """Plain Python numbers, alone or in lists, as C's int and float; all else as it is. Errors:
    InvalidError."""
    leaves = list(_leaves(value))
    kinds = {type(leaf) for leaf in leaves}
    if kinds == {int, float}:  # a list of both is one of floats
        kinds, leaves = {float}, [float(leaf) for leaf in leaves]
    dtype = _AS_C.get(kinds.pop()) if len(kinds) == 1 else None
    if dtype is None:
        return value
    try:
        data = struct.pack(f"{len(leaves)}{dtype.char}", *leaves)
        return np.frombuffer(data, dtype).reshape(np.shape(value))
    except (OverflowError, struct.error):
        wide = "numpy.int64" if dtype.kind == "i" else "numpy.float64"
        raise InvalidError(
            f'"{name}": a bitstream sends plain numbers as {dtype}, which has no room for '
            f"{ascii(value)[:100]}: to a compiler that "
            f"reads 8 bytes reply {wide}(...), or an array of that dtype"
        ) from None
    except ValueError:  # rows of unequal length, which have no form here
        return value


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


PLUGIN = PipeHost
