"""What every SerDes is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


class SerDes:
    """What a SerDes plug-in subclasses: `encode` and `decode` are all it must have. The URL's
    options that are parameters of its constructor come there as str.

    Values are numpy arrays, numpy scalars for rank 0, str, lists of str and `shmbridge.Ragged`; a
    decoder may give anything that `Runner.evaluate` takes. Methods may be called by several threads
    at once. Whatever they raise fails the message with the exception's type and text; a
    ShmbridgeError keeps its status. A decoder must stand any bytes, in time and memory that their
    number bounds.
    """

    def encode(self, fields: Mapping[str, Any]) -> bytes:
        """The bytes of a message.

        Args:
            fields: The values, by name.

        Raises:
            UnsupportedError: The format cannot hold a field, which the text names.
        """
        raise NotImplementedError

    def decode(self, data: bytes) -> Mapping[str, Any]:
        """The message of these bytes.

        Args:
            data: The bytes.

        Raises:
            CorruptError: They are no message.
        """
        raise NotImplementedError

    def encode_request(self, fields: Mapping[str, Any], want: np.dtype[Any] | None) -> bytes:
        """The bytes of a request.

        Args:
            fields: The values, by name.
            want: The dtype that the advice is wanted in. None: whatever the model gives.
        """
        return self.encode(fields)

    def decode_request(self, data: bytes) -> tuple[Mapping[str, Any], np.dtype[Any] | None]:
        """The request of these bytes.

        Args:
            data: The bytes.

        Returns:
            The values by name, and the dtype that the advice is wanted in; None where the bytes do
            not tell.
        """
        return self.decode(data), None

    def encode_advice(self, advice: Mapping[str, Any]) -> bytes:
        """The bytes of advice.

        Args:
            advice: The values, by name. One without a name is called "advice".
        """
        return self.encode(advice)

    def decode_advice(self, data: bytes, want: np.dtype[Any] | None) -> Mapping[str, Any]:
        """The advice of these bytes.

        Args:
            data: The bytes.
            want: The dtype that it was wanted in. One value of another dtype is converted later if
                that is exact.
        """
        return self.decode(data)
