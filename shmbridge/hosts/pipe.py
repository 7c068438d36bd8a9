"""ML-Compiler-Bridge's protocol: "pipe:///PATH?serdes=NAME", for its compilers as they are, and for our pipe:// runners."""

from __future__ import annotations

from typing import Any

from shmbridge import serdes
from shmbridge.errors import InvalidError
from shmbridge.hosts import Line, Relayed


class PipeHost(Relayed):
    """One pair of pipes, PATH.in and PATH.out, for one compiler after another. NAME: a SerDes, "bitstream" unless told.

    A compiler may want its advice in a certain dtype and, speaking bitstream, cannot say which: advice=[TensorSpec("advice",
    numpy.int32)] converts whatever the model returns, and refuses what that dtype cannot hold exactly. What the model raises
    reaches shmbridge's runners as ModelError; other clients see a frame whose length has its top bit set.
    """

    def __init__(self, url: str, **options: Any) -> None:
        where, _, query = serdes.resolve(url).partition("://")[2].partition("?")
        chosen = dict(part.partition("=")[::2] for part in query.split("&") if part)
        name = chosen.pop("serdes", "bitstream")
        if chosen or not where or "\0" in where:
            raise InvalidError(
                f"{url!r}: expected pipe:///PATH, with no option but serdes=NAME and its own"
            )
        super().__init__(url, [Line(where, "frames", name)], **options)


PLUGIN = PipeHost
