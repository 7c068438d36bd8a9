"""From ONNX, by emx-onnx-cgen, which writes one C function. What it writes is changed in two places: large temporaries that it makes
static become each thread's own, and large weights lie in one block of bytes, in the library or in a file."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shmbridge.compile.toolchain import Built, CompileError, Job, need
from shmbridge.compile.wrap import ROOM, Port, c_string, entry
from shmbridge.errors import UnsupportedError

DTYPES = {
    "_Bool": ("bool", 1), "bool": ("bool", 1), "int8_t": ("int8", 1), "int16_t": ("int16", 2), "int32_t": ("int32", 4), "int64_t": ("int64", 8),
    "uint8_t": ("uint8", 1), "uint16_t": ("uint16", 2), "uint32_t": ("uint32", 4), "uint64_t": ("uint64", 8),
    "_Float16": ("float16", 2), "float": ("float32", 4), "double": ("float64", 8), "__bf16": ("bfloat16", 2),
}  # fmt: skip
TEXT = (
    100 * 1024
)  # bytes of weights that are written as C, where the compiler sees their values; more go to the block
HEADER = 64  # bytes before the weights in their file: magic, fingerprint, zeros
MAGIC = b"SHMBWT01"
ELSE = "use onnx://, which runs any model, or export it otherwise"


@dataclass(frozen=True)
class _Weight:
    """An array of the block, as C declares it."""

    c_type: str
    name: str
    extents: str  # "[300][64]"

    @property
    def bytes(self) -> int:
        size = DTYPES[self.c_type][1]
        for extent in re.findall(r"\d+", self.extents):
            size *= int(extent)
        return size


@dataclass(frozen=True)
class _Parameter:
    """An array that the generated function takes."""

    c_type: str
    extents: tuple[str, ...]  # C expressions


def build(job: Job) -> Built:
    """Errors: UnsupportedError, CompileError."""
    need("emx_onnx_cgen", "compiling ONNX models", "'shmbridge[compile]'")
    onnx = need("onnx", "compiling ONNX models", "'shmbridge[compile]'")
    try:
        graph = onnx.load(job.model, load_external_data=False).graph
    except Exception as error:  # of protobuf's
        raise CompileError(f"{job.model}: expected an ONNX model: {error}") from error
    stored = {tensor.name for tensor in graph.initializer}
    names = (
        [port.name for port in graph.input if port.name not in stored],
        [port.name for port in graph.output],
    )
    text, weights = _adapt(_generate(job))
    sizes, parameters = _signature(text)
    inputs, outputs = _match(job, names, parameters)
    block = _block(weights, job.folder / "model.bin")
    fingerprint = hashlib.sha256(re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL).encode()).digest()
    (job.folder / "model.c").write_text(text)
    header = (MAGIC + fingerprint).ljust(HEADER, b"\0")
    file = job.folder / "model.weights"
    file.write_bytes(header + block)
    source = job.folder / "aot.c"
    source.write_text(
        "".join(
            [
                _HEAD,
                ROOM,
                _weights(weights, header, len(block), file.name, job.weights),
                '#define malloc checked_malloc\n#include "model.c"\n#undef malloc\n',
                _run(sizes, parameters, inputs, outputs, job.weights),
                entry(
                    inputs, outputs, f"{job.model.name}, by emx-onnx-cgen", opens=True, closes=True
                ),
            ]
        )
    )
    return Built(
        source,
        file if job.weights else None,
        inputs,
        outputs,
        lambda arrays: _ask(job.model, arrays),
        "ONNX Runtime",
    )


def _generate(job: Job) -> str:
    sizes = [f"--input-dim={name}={size}" for name, size in job.sizes.items()]
    threshold = f"--large-weight-threshold={1 if job.weights else TEXT}"
    try:
        job.run(
            sys.executable, "-m", "emx_onnx_cgen", "compile", "--color=never", threshold, "--shape-inference-json=shapes.json",
            "--model-name=model", *sizes, job.model.absolute(), "model.c",
        )  # fmt: skip
    except CompileError as error:
        said = (
            re.findall(r"^Result: (.*)", str(error), re.MULTILINE) or str(error).splitlines()[-1:]
        )
        dims = "" if job.sizes else "; if a dimension is open, give it a size (--dim NAME=SIZE)"
        raise CompileError(
            f"emx-onnx-cgen cannot compile this model: {said[0]}\n{ELSE}{dims}"
        ) from error
    return (job.folder / "model.c").read_text()


def _adapt(text: str) -> tuple[str, list[_Weight]]:
    """The generated code without what loads weights into variables that all users of the library would share, and the weights."""
    weights = [
        _Weight(*found)
        for found in re.findall(
            r"^extern (?!const )([\w ]+?) (\w+)((?:\[\d+\])+);$", text, re.MULTILINE
        )
    ]
    for weight in weights:
        if weight.c_type not in DTYPES:
            raise UnsupportedError(
                f"weights of the C type {weight.c_type} go nowhere but inside: leave --weights out"
            )
        declared = re.escape(f"{weight.c_type} {weight.name}{weight.extents};")
        text = re.sub(rf"^(extern )?{declared}\n", "", text, flags=re.MULTILINE)
    text = re.sub(
        r"^(static )?_Bool model_load(_file)?\([^)]*\)(;\n| \{\n.*?^\}\n)",
        "",
        text,
        flags=re.MULTILINE | re.DOTALL,
    )
    return re.sub(
        r"^(\s+)static (?!const |inline )", r"\1static _Thread_local ", text, flags=re.MULTILINE
    ), weights


def _signature(text: str) -> tuple[list[str], list[_Parameter]]:
    """The open sizes' names, and the arrays: inputs, then outputs."""
    found = re.search(r"^void model\((.*)\) \{$", text, re.MULTILINE)
    if not found:
        raise CompileError(
            "expected a function `void model(…)` from emx-onnx-cgen, found none: this version of it is not known here"
        )
    sizes, arrays = [], []
    for parameter in found[1].split(", "):
        if size := re.fullmatch(r"int (\w+)", parameter):
            sizes.append(f"dim_{size[1]}")
        elif array := re.fullmatch(r"(?:const )?(\w+) \w+((?:\[[^]]*\])+)", parameter):
            extents = re.findall(r"\[(?:restrict )?([^]]*)\]", array[2])
            arrays.append(
                _Parameter(
                    array[1],
                    tuple(re.sub(r"[A-Za-z_]\w*", r"dim_\g<0>", extent) for extent in extents),
                )
            )
        else:
            raise UnsupportedError(
                f"the model takes `{parameter}`: sequences, texts and optional inputs do not compile: {ELSE}"
            )
    return sizes, arrays


def _match(
    job: Job, names: tuple[list[str], list[str]], parameters: Sequence[_Parameter]
) -> tuple[list[Port], list[Port]]:
    """The ports, as the generator inferred them."""
    if len(names[0]) + len(names[1]) != len(parameters):
        raise CompileError(
            f"expected {len(names[0])} inputs and {len(names[1])} outputs from emx-onnx-cgen, found {len(parameters)} arrays"
        )
    inferred = json.loads((job.folder / "shapes.json").read_text())["tensors"]
    ports = []
    for name, parameter in zip([*names[0], *names[1]], parameters, strict=True):
        dims = inferred[name]["inferred"]["dims"]
        extents = parameter.extents if dims else ()
        if parameter.c_type not in DTYPES or len(extents) != len(dims):
            raise UnsupportedError(
                f'"{name}" is {parameter.c_type}{list(extents)} in C, which is no tensor: {ELSE}'
            )
        for size, extent in zip(dims, extents, strict=True):
            if extent.isdigit() and size != int(extent):
                raise UnsupportedError(f'"{name}": its size depends on values: {ELSE}')
        ports.append(
            Port(
                name,
                DTYPES[parameter.c_type][0],
                tuple(int(e) if e.isdigit() else -1 for e in extents),
            )
        )
    return ports[: len(names[0])], ports[len(names[0]) :]


def _block(weights: Sequence[_Weight], file: Path) -> bytes:
    """The generator's file of weights with each at a multiple of 64."""
    raw, block, at = file.read_bytes() if weights else b"", bytearray(), 0
    for weight in weights:
        block += raw[at : at + weight.bytes]
        block += bytes(-len(block) % 64)
        at += weight.bytes
    if at != len(raw):
        raise CompileError(f"expected {at} bytes of weights from emx-onnx-cgen, found {len(raw)}")
    return bytes(block)


def _ask(model: Path, arrays: Sequence[Any]) -> Sequence[Any]:
    runtime = need("onnxruntime", "the check", "onnxruntime, or say --no-check")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = runtime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    asked: Sequence[Any] = session.run(
        None, {port.name: array for port, array in zip(session.get_inputs(), arrays, strict=True)}
    )
    return asked


# ---- The C around it ----

_HEAD = """#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <shmbridge.h>

/* The generated function returns nothing, also when it has no memory. */
static _Thread_local bool no_memory;
__attribute__((unused)) static void *checked_malloc(size_t bytes) {
    void *p = malloc(bytes);
    no_memory |= !p;
    return p;
}
"""


def _weights(weights: Sequence[_Weight], header: bytes, size: int, file: str, outside: bool) -> str:
    lines, at = [f"enum {{ HEADER = {HEADER}, WEIGHTS = {size} }};"], 0
    if outside:
        lines += [f"static const unsigned char header[HEADER] = {{{', '.join(map(str, header))}}};"]
        lines += ["static _Thread_local const unsigned char *weights;"]
    elif weights:
        lines += [
            f'__asm__(".pushsection .rodata\\n.balign 64\\nmodel_weights:\\n.incbin \\"{file}\\", {HEADER}\\n.popsection");',
            'extern const unsigned char weights[WEIGHTS] __asm__("model_weights") __attribute__((visibility("hidden"), aligned(64)));',
        ]
    for weight in weights:
        lines.append(
            f"#define {weight.name} (*(const {weight.c_type} (*){weight.extents})(weights + {at}))"
        )
        at += weight.bytes + -weight.bytes % 64
    return "\n".join([*lines, ""])


def _run(
    sizes: Sequence[str],
    parameters: Sequence[_Parameter],
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    outside: bool,
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
                    f"    const int64_t {extent} = {dim};\n    if ({extent} < 1 || {extent} > INT32_MAX) return {c_string(text)};"
                )
            else:
                raise UnsupportedError(
                    f'"{port.name}": its size {extent} cannot be known from the inputs: {ELSE}'
                )
        if not port.fixed:
            checks.append(
                f"    if (inputs[{i}].size > INT32_MAX) return {c_string(port.name + ': more elements than the compiled model can count')};"
            )
    if missing := set(sizes) - known:
        raise UnsupportedError(
            f"the outputs' size {', '.join(sorted(missing))} depends on values: {ELSE}"
        )
    arguments = [*sizes, *(f"(const void *)inputs[{i}].data" for i in range(len(inputs)))]
    for i, (port, parameter) in enumerate(zip(outputs, parameters[len(inputs) :], strict=True)):
        arguments.append(f"(void *)outputs[{i}].data")
        if not port.fixed:
            dims = ", ".join(parameter.extents)
            checks.append(
                f"    if (!make_room(&s->out[{i}], &outputs[{i}], {len(port.dims)}, (int64_t[]){{{dims}}}, sizeof({parameter.c_type}))) return no_room;"
            )
    return _BODY % {
        "outs": max(len(outputs), 1),
        "load": _LOAD if outside else _INSIDE,
        "own": "bool ok = load(s, file);" if outside else "bool ok = !file;",
        "use": "    weights = s->weights + HEADER;" if outside else "",
        "free": "    free(s->weights);" if outside else "",
        "checks": "\n".join(checks),
        "arguments": ", ".join(arguments),
    }  # fmt: skip


_INSIDE = """
static const char why[] = "its weights are inside: leave weights=FILE out, or compile the model with --weights";
"""

_LOAD = """
static _Thread_local char why[400];
static bool load(struct state *s, const char *file) {
    if (!file) {
        strcpy(why, "its weights are in a file: say weights=FILE in the URL, one that shmbridge compile --weights wrote");
        return false;
    }
    FILE *in = fopen(file, "rb");
    if (!in) {
        snprintf(why, sizeof why, "weights=%.200s: %s", file, strerror(errno));
        return false;
    }
    s->weights = aligned_alloc(64, HEADER + WEIGHTS + 64);
    size_t got = s->weights ? fread(s->weights, 1, HEADER + WEIGHTS + 1, in) : 0;
    fclose(in);
    bool ok = got == HEADER + WEIGHTS && memcmp(s->weights, header, HEADER) == 0;
    if (!ok && !s->weights) strcpy(why, "no memory for the weights");
    else if (!ok)
        snprintf(why, sizeof why, "weights=%.200s: expected the weights of this very model, as shmbridge compile --weights writes them, found %s",
                 file, got < HEADER || memcmp(s->weights, header, 8) ? "a file of another kind" : memcmp(s->weights, header, HEADER) ? "another model's" : "another size");
    return ok;
}
"""

_BODY = """
struct state { unsigned char *weights; struct out out[%(outs)d]; };
%(load)s
static const char no_room[] = "no memory for the model";

static void close_model(void *state) {
    struct state *s = state;
    for (int i = 0; i < %(outs)d; i++) free(s->out[i].data);
%(free)s
    free(s);
}

static const char *open_model(const char *file, void **state) {
    struct state *s = calloc(1, sizeof *s);
    if (!s) return no_room;
    %(own)s
    if (!ok) {
        close_model(s);
        return why;
    }
    *state = s;
    return NULL;
}

static const char *run(void *state, const shmb_tensor *inputs, shmb_tensor *outputs) {
    struct state *s = state;
    (void)s, (void)inputs;
%(use)s
%(checks)s
    model(%(arguments)s);
    if (__builtin_expect(no_memory, 0)) {
        no_memory = false;
        return no_room;
    }
    return NULL;
}
"""
