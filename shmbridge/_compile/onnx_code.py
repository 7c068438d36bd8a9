"""The C around the function that emx-onnx-cgen makes of an ONNX model."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from shmbridge._compile.wrap import Port, c_string
from shmbridge.errors import UnsupportedError

DTYPES = {
    f"{sign}int{bits}_t": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}
DTYPES |= {"_Bool": "bool", "bool": "bool", "_Float16": "float16", "__bf16": "bfloat16"}
DTYPES |= {"float": "float32", "double": "float64"}
ELSE = "use onnx://, which runs any model, or export it otherwise"


@dataclass(frozen=True)
class Weight:
    c_type: str
    name: str
    extents: str  # "[300][64]"

    @property
    def bytes(self) -> int:
        extents = tuple(map(int, re.findall(r"\d+", self.extents)))
        return Port(self.name, DTYPES[self.c_type], extents).bytes


@dataclass(frozen=True)
class Parameter:
    c_type: str
    extents: tuple[str, ...]  # C expressions


HEAD = """#define _GNU_SOURCE
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <shmbridge/model.h>

static const char no_room[] = "no memory for the model";

/* The generated functions return nothing, also when they have no memory or a wrong index. */
static _Thread_local const char *failed;
static _Thread_local char failure[200];
__attribute__((unused)) static void *checked_malloc(size_t bytes) {
    void *p = malloc(bytes);
    if (!p) failed = no_room;
    return p;
}
__attribute__((unused, cold, noinline)) static void outside(const char *op, int64_t found,
    int64_t low, int64_t high) {
    if (failed) return; /* what follows a failure computes with what it left */
    snprintf(failure, sizeof failure, "%s: expected an index from %lld to %lld, found %lld", op,
        (long long)low, (long long)high, (long long)found);
    failed = failure;
}
"""


# Memory of an output whose sizes the model learns as it runs.
ROOM = """
struct out { void *data; size_t room; int64_t dims[SHMB_MAX_RANK]; };

__attribute__((unused)) static bool make_room(struct out *o, shmb_tensor *t, int rank,
    const int64_t *dims, size_t element) {
    t->size = 1;
    for (int i = 0; i < rank; i++) {
        o->dims[i] = dims[i];
        if (__builtin_mul_overflow(t->size, dims[i], &t->size) || t->size > INT32_MAX) return false;
    }
    size_t bytes = ((size_t)t->size * element + 64) / 64 * 64;
    if (bytes > o->room) {
        free(o->data);
        o->data = aligned_alloc(64, bytes);
        o->room = o->data ? bytes : 0;
    }
    t->dims = o->dims;
    t->data = o->data;
    return t->data;
}
"""


def weights_code(weights: Sequence[Weight], size: int, file: str) -> str:
    """The block of large weights, which the file has, as bytes of the library."""
    if not weights:
        return ""
    lines, at = [], 0
    lines += [
        f'__asm__(".pushsection .rodata\\n.balign 64\\nmodel_weights:\\n.incbin \\"{file}\\"'
        '\\n.popsection");',
        f'extern const unsigned char weights[{size}] __asm__("model_weights") '
        '__attribute__((visibility("hidden"), aligned(64)));',
    ]
    for weight in weights:
        lines.append(
            f"#define {weight.name} (*(const {weight.c_type} (*){weight.extents})(weights + {at}))"
        )
        at += weight.bytes + -weight.bytes % 64
    return "\n".join([*lines, ""])


def run_code(
    sizes: Sequence[str],
    parameters: Sequence[Parameter],
    inputs: Sequence[Port],
    outputs: Sequence[Port],
) -> str:
    """open_model, run, close_model."""
    checks, known = [], set()
    for i, (port, parameter) in enumerate(zip(inputs, parameters, strict=False)):
        for k, extent in enumerate(parameter.extents if port.dims else ()):
            dim = f"inputs[{i}].dims[{k}]"
            if extent.isdigit():
                continue
            if extent in known:
                text = f'"{port.name}": dim {k} must be {extent[4:]}, as in the other inputs'
                checks.append(f"    if ({dim} != {extent}) return {c_string(text)};")
            elif extent in sizes:
                known.add(extent)
                text = f'"{port.name}": dim {k} must be 1 to 2147483647'
                checks.append(
                    f"    const int64_t {extent} = {dim};\n    if ({extent} < 1 || {extent} > "
                    f"INT32_MAX) return {c_string(text)};"
                )
            else:
                raise UnsupportedError(
                    f'"{port.name}": its size {extent} cannot be known from the inputs: {ELSE}'
                )
        if not port.fixed:
            checks.append(
                f"    if (inputs[{i}].size > INT32_MAX) return "
                f"{c_string(port.name + ': more elements than the compiled model can count')};"
            )
    if missing := set(sizes) - known:
        raise UnsupportedError(
            f"the outputs' size {', '.join(sorted(missing))} depends on values: {ELSE}"
        )
    arguments = [*sizes, *(_data("inputs", i, port) for i, port in enumerate(inputs))]
    for i, (port, parameter) in enumerate(zip(outputs, parameters[len(inputs) :], strict=True)):
        arguments.append(_data("outputs", i, port))
        if not port.fixed:
            dims = ", ".join(parameter.extents)
            checks.append(
                f"    if (!make_room(&s->out[{i}], &outputs[{i}], {len(port.dims)}, "
                f"(int64_t[]){{{dims}}}, sizeof({parameter.c_type}))) return no_room;"
            )
    empty = [port for port in (*inputs, *outputs) if 0 in port.dims]
    least = [replace(port, dims=tuple(n or 1 for n in port.dims if n >= 0)) for port in empty]
    room = max((port.bytes for port in least), default=0)
    return _BODY % {
        "nothing": f"static _Thread_local _Alignas(64) unsigned char nothing[{room}];"
        if room
        else "",
        "outs": max(len(outputs), 1),
        "checks": "\n".join(checks),
        "arguments": ", ".join(arguments),
    }


def _data(ports: str, i: int, port: Port) -> str:
    """An argument. The generated code may touch one element of what is empty: there must be
    memory."""
    return "(void *)nothing" if 0 in port.dims else f"(void *){ports}[{i}].data"


_BODY = """
struct state { struct out out[%(outs)d]; };
%(nothing)s

static void close_model(void *state) {
    struct state *s = state;
    for (int i = 0; i < %(outs)d; i++) free(s->out[i].data);
    free(s);
}

static const char *open_model(const char *file, void **state) {
    if (file) return "its weights are inside: leave weights=FILE out";
    *state = calloc(1, sizeof(struct state));
    return *state ? NULL : no_room;
}

static const char *run(void *state, const shmb_tensor *inputs, shmb_tensor *outputs) {
    struct state *s = state;
    (void)s, (void)inputs;
%(checks)s
    failed = NULL;
    model(%(arguments)s);
    return failed;
}
"""
