"""Dtypes, as wire codes and numpy's, and what a field of one should be."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from shmbridge._native import ffi, lib
from shmbridge.errors import InvalidError


def dtype_name(code: int) -> str:
    """The name of a wire code, also of one that has no numpy dtype here; "unknown" of what is
    none."""
    return str(ffi.string(lib.shmb_dtype_name(code)).decode())


# Names by wire code.
DTYPES = {code: dtype_name(code) for code in range(1, 256) if lib.shmb_dtype_size(code)}
# Those that numpy has itself; the others come with the package ml_dtypes.
DTYPE_OF_CODE: dict[int, np.dtype[Any]] = {
    code: np.dtype(name) for code, name in DTYPES.items() if name in np.sctypeDict
}
CODE_OF_DTYPE = {dtype: code for code, dtype in DTYPE_OF_CODE.items()}


def dtype_of(code: int) -> np.dtype[Any]:
    """numpy's dtype of a wire code; bfloat16 needs the package ml_dtypes."""
    if code in DTYPE_OF_CODE:
        return DTYPE_OF_CODE[code]
    if code not in DTYPES:
        raise InvalidError(f"expected a dtype code of 1 to {max(DTYPES)}, found {code}")
    name = DTYPES[code]
    try:
        import ml_dtypes
    except ImportError as error:
        raise InvalidError(
            f"a tensor of dtype {name} came in: pip install shmbridge[bfloat16] to read it"
        ) from error
    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    DTYPE_OF_CODE[code], CODE_OF_DTYPE[dtype] = dtype, code
    return dtype


def dtype_if_known(code: int) -> np.dtype[Any] | None:
    """The same; None for SHMB_ANY, and where this Python lacks it."""
    with contextlib.suppress(InvalidError):
        return dtype_of(code)
    return None


def code_of(dtype: np.dtype[Any], name: str) -> int:
    """The wire code of a numpy dtype (byte order aside); InvalidError names the field."""
    code = CODE_OF_DTYPE.get(dtype) or CODE_OF_DTYPE.get(dtype.newbyteorder("="))
    # Of ml_dtypes, which somebody else has imported.
    if code is None and dtype.name in DTYPES.values():
        code = CODE_OF_DTYPE[dtype] = next(
            code for code, name in DTYPES.items() if name == dtype.name
        )
        DTYPE_OF_CODE.setdefault(code, dtype)
    if code is None:
        raise InvalidError(
            f'"{name}": no tensor has dtype {dtype}; expected bool, int8 to uint64, float16 to '
            "float64 or bfloat16"
        )
    return code


@dataclass(frozen=True)
class TensorSpec:
    """A specification of a field.

    Args:
        name: The field's name.
        dtype: Anything that numpy accepts as a dtype.
        shape: The sizes, None for any size. None: any shape.
    """

    name: str
    dtype: Any
    shape: tuple[int | None, ...] | None = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", np.dtype(self.dtype))

    def matches(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
        """Whether an array matches.

        Args:
            dtype: The array's dtype.
            shape: The array's shape.
        """
        if dtype != self.dtype:
            return False
        if self.shape is None:
            return True
        return len(shape) == len(self.shape) and all(
            want in (None, size) for want, size in zip(self.shape, shape, strict=True)
        )

    def __str__(self) -> str:
        sizes = ["..."] if self.shape is None else ["?" if n is None else n for n in self.shape]
        return f"{self.name}: {self.dtype}[{', '.join(map(str, sizes))}]"
