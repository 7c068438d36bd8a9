"""The C code of every compiled model: its ports, and the entry for `aot://`."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from shmbridge._native import lib
from shmbridge.errors import UnsupportedError


@dataclass(frozen=True)
class Port:
    """An input or output. dims: -1 for any size."""

    name: str
    dtype: str  # "float32"
    dims: tuple[int, ...]

    @property
    def fixed(self) -> bool:
        return min(self.dims, default=0) >= 0

    @property
    def bytes(self) -> int:
        """The bytes of its tensor, if all sizes are known."""
        return prod(self.dims) * int(lib.shmb_dtype_size(_dtype(self)))

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.dtype}[{', '.join('?' if n < 0 else str(n) for n in self.dims)}]"
        )


def c_string(text: str) -> str:
    """A C literal of the text's UTF-8."""
    body = "".join(
        chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in text.encode()
    )
    return f'"{body}"'


def _ports(what: str, ports: Sequence[Port]) -> str:
    lines = []
    for i, port in enumerate(ports):
        if port.dims:
            lines.append(
                f"static const int64_t {what}_dims{i}[] = {{{', '.join(map(str, port.dims))}}};"
            )
    lines.append(f"static const shmb_port {what}s[] = {{")
    for i, port in enumerate(ports):
        dims = f"{what}_dims{i}" if port.dims else "0"
        lines.append(
            f"    {{{c_string(port.name)}, (shmb_dtype){_dtype(port)}, {len(port.dims)}, {dims}}},"
        )
    if not ports:
        lines.append("    {0}")
    return "\n".join([*lines, "};"])


def _dtype(port: Port) -> int:
    code = getattr(lib, f"SHMB_{port.dtype.upper()}", None)
    if code is None:
        raise UnsupportedError(
            f"{port}: no tensor of shmbridge has that dtype; expected bool, int8 to uint64, "
            "float16 to float64 or bfloat16"
        )
    return int(code)


def entry(inputs: Sequence[Port], outputs: Sequence[Port]) -> str:
    """The end of the C file: expects `open_model`, `run` and `close_model` above it."""
    return f"""
{_ports("input", inputs)}
{_ports("output", outputs)}
__attribute__((visibility("default"))) const shmb_model *shmb_model_entry(void) {{
    static const shmb_model model = {{sizeof model, {len(inputs)}, {len(outputs)}, inputs, outputs,
                                     open_model, run, close_model}};
    return &model;
}}
"""
