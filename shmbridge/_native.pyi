# cffi makes this module of the C headers: mypy does not see into it.
from typing import Any

ffi: Any
lib: Any
