"""The base class of SerDes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


class SerDes:
    """The base class of SerDes plug-ins. `encode` and `decode` are required. URL options that are
    parameters of its constructor are passed as str.

    Values are numpy arrays, numpy scalars for rank 0, str, lists of str and `shmbridge.Ragged`. A
    decoder may return any type that `Runner.evaluate` accepts. Several threads may call methods at
    once. An exception fails the message with its type and text; a ShmbridgeError keeps its status.
    A decoder must accept any bytes, with time and memory bounded by their number.
    """

    def encode(self, fields: Mapping[str, Any]) -> bytes:
        """Encodes a message.

        Args:
            fields: The values, by name.

        Raises:
            UnsupportedError: The format does not support a field, which the text names.
        """
        raise NotImplementedError

    def decode(self, data: bytes) -> Mapping[str, Any]:
        """Decodes a message.

        Args:
            data: The bytes.

        Raises:
            CorruptError: The bytes are not a message.
        """
        raise NotImplementedError

    def encode_request(self, fields: Mapping[str, Any], want: np.dtype[Any] | None) -> bytes:
        """Encodes a request.

        Args:
            fields: The values, by name.
            want: The wanted dtype of the advice. None: no preference.
        """
        return self.encode(fields)

    def decode_request(self, data: bytes) -> tuple[Mapping[str, Any], np.dtype[Any] | None]:
        """Decodes a request.

        Args:
            data: The bytes.

        Returns:
            The values by name, and the wanted dtype of the advice; None if the bytes do not contain
            it.
        """
        return self.decode(data), None

    def encode_advice(self, advice: Mapping[str, Any]) -> bytes:
        """Encodes advice.

        Args:
            advice: The values, by name. A value without a name is called "advice".
        """
        return self.encode(advice)

    def decode_advice(self, data: bytes, want: np.dtype[Any] | None) -> Mapping[str, Any]:
        """Decodes advice.

        Args:
            data: The bytes.
            want: Its wanted dtype. A single value of another dtype is converted later if that is
                exact.
        """
        return self.decode(data)
