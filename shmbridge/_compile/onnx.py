"""From ONNX, by emx-onnx-cgen, which writes one C function. What it writes is changed in two
places: large temporaries that it makes static become each thread's own, and large weights lie in
one block of bytes in the library."""

import json
import re
import sys
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from shmbridge._compile.onnx_code import (
    DTYPES,
    ELSE,
    HEAD,
    ROOM,
    Parameter,
    Weight,
    run_code,
    weights_code,
)
from shmbridge._compile.toolchain import BuildDirectory, Built, CompileError, need
from shmbridge._compile.wrap import Port, entry
from shmbridge.errors import UnsupportedError

# bytes of weights that are written as C, where the compiler sees their values; more go to the block
TEXT = 100 * 1024


def _check_names(graph: Any) -> None:
    """ValueError where a value is not computed before it is read, or is twice: the generated code
    would read what lies in its memory."""
    inputs = [port.name for port in graph.input]
    known = {*inputs, *(tensor.name for tensor in graph.initializer)}
    known |= {tensor.values.name for tensor in graph.sparse_initializer}
    made = inputs + [name for node in graph.node for name in node.output if name]
    if "" in known or len({*made}) < len(made):
        raise ValueError(f"expected different names, found {sorted(made)}")
    for node in [*graph.node, None]:
        wanted = node.input if node else [port.name for port in graph.output]
        if lost := [name for name in wanted if name not in known and (name or not node)]:
            raise ValueError(f"nothing computes {lost[0]!r} before it is read")
        known.update(node.output if node else ())


def build(job: BuildDirectory) -> Built:
    """Errors: UnsupportedError, CompileError."""
    need("emx_onnx_cgen", "compiling ONNX models", "'shmbridge[compile]'")
    onnx = need("onnx", "compiling ONNX models", "'shmbridge[compile]'")
    from shmbridge._compile.operators import plain, review, review_open, with_checks

    try:
        loaded = onnx.load(job.model)
        _check_names(loaded.graph)
    except Exception as error:  # of protobuf's; no external data; names that make no graph
        raise CompileError(f"{job.model}: expected an ONNX model: {error}") from error
    loaded = plain(loaded)
    review(loaded)
    graph, model = loaded.graph, job.folder / "plain.onnx"
    onnx.save(loaded, model)
    stored = {tensor.name for tensor in graph.initializer}
    names = (
        [port.name for port in graph.input if port.name not in stored],
        [port.name for port in graph.output],
    )
    text = _generate(job, model)
    inferred = json.loads((job.folder / "shapes.json").read_text())["tensors"]
    shapes = {name: tensor["inferred"]["dims"] for name, tensor in inferred.items()}
    shapes |= {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    review_open(shapes)
    text, weights = _adapt(with_checks(text, graph.node, shapes))
    sizes, parameters = _signature(text)
    inputs, outputs = _match(shapes, names, parameters)
    block = _block(weights, job.folder / "model.bin")
    (job.folder / "model.c").write_text(text)
    (job.folder / "weights.bin").write_bytes(block)
    source = job.folder / "aot.c"
    parts = [
        HEAD,
        ROOM,
        weights_code(weights, len(block), "weights.bin"),
        "#define idx_t int64_t\n" if sizes else "",  # a product of open sizes may be large
        '#define malloc checked_malloc\n#include "model.c"\n#undef malloc\n',
        run_code(sizes, parameters, inputs, outputs),
        entry(inputs, outputs),
    ]
    source.write_text("".join(parts))
    return Built(source, inputs, outputs, partial(_ask, job.model), "ONNX Runtime")


def _generate(job: BuildDirectory, model: Path) -> str:
    sizes = [f"--input-dim={name}={size}" for name, size in job.sizes.items()]
    threshold = f"--large-weight-threshold={TEXT}"
    try:
        options = ["--color=never", "--shape-inference-json=shapes.json", "--model-name=model"]
        generator = [sys.executable, "-m", "emx_onnx_cgen", "compile"]
        job.run(*generator, *options, threshold, *sizes, model, "model.c")
    except CompileError as error:
        result = re.findall(r"^Result: (.*)", str(error), re.MULTILINE)
        said = result or str(error).splitlines()[-1:]
        dims = "" if job.sizes else "; if a dimension is open, give it a size (--dim NAME=SIZE)"
        raise CompileError(
            f"emx-onnx-cgen cannot compile this model: {said[0]}\n{ELSE}{dims}"
        ) from error
    return (job.folder / "model.c").read_text()


def _adapt(text: str) -> tuple[str, list[Weight]]:
    """The generated code without what loads weights into variables that all users of the library
    would share, and the weights."""
    weights = [
        Weight(*found)
        for found in re.findall(
            r"^extern (?!const )([\w ]+?) (\w+)((?:\[\d+\])+);$", text, re.MULTILINE
        )
    ]
    for weight in weights:
        if weight.c_type not in DTYPES:
            raise UnsupportedError(f"weights of the C type {weight.c_type} do not compile: {ELSE}")
        declared = re.escape(f"{weight.c_type} {weight.name}{weight.extents};")
        text = re.sub(rf"^(extern )?{declared}\n", "", text, flags=re.MULTILINE)
    text = re.sub(
        r"^(static )?_Bool model_load(_file)?\([^)]*\)(;\n| \{\n.*?^\}\n)",
        "",
        text,
        flags=re.MULTILINE | re.DOTALL,
    )
    variable = r"^([ \t]*)static (?!const |inline )(?=[^(\n]*[;=\[])"
    return re.sub(variable, r"\1static _Thread_local ", text, flags=re.MULTILINE), weights


def _signature(text: str) -> tuple[list[str], list[Parameter]]:
    """The open sizes' names, and the arrays: inputs, then outputs."""
    found = re.search(r"^void model\((.*)\) \{$", text, re.MULTILINE)
    if not found:
        raise CompileError(
            "expected a function `void model(…)` from emx-onnx-cgen, found none: this version of "
            "it is not supported"
        )
    sizes, arrays = [], []
    for parameter in found[1].split(", "):
        if size := re.fullmatch(r"int (\w+)", parameter):
            sizes.append(f"dim_{size[1]}")
        elif array := re.fullmatch(r"(?:const )?(\w+) \w+((?:\[[^]]*\])+)", parameter):
            extents = re.findall(r"\[(?:restrict )?([^]]*)\]", array[2])
            arrays.append(
                Parameter(
                    array[1],
                    tuple(re.sub(r"[A-Za-z_]\w*", r"dim_\g<0>", extent) for extent in extents),
                )
            )
        else:
            raise UnsupportedError(
                f"the model takes `{parameter}`: sequences, texts and optional inputs do not "
                f"compile: {ELSE}"
            )
    return sizes, arrays


def _match(
    shapes: dict[str, Any], names: tuple[list[str], list[str]], parameters: Sequence[Parameter]
) -> tuple[list[Port], list[Port]]:
    """The ports, as the generator inferred them. A size of 0 is 1 in its C, which has no empty
    arrays."""
    if len(names[0]) + len(names[1]) != len(parameters):
        raise CompileError(
            f"expected {len(names[0])} inputs and {len(names[1])} outputs from emx-onnx-cgen, "
            f"found {len(parameters)} arrays"
        )
    ports = []
    for name, parameter in zip([*names[0], *names[1]], parameters, strict=True):
        dims = shapes[name]
        extents = parameter.extents if dims else ()
        if parameter.c_type not in DTYPES or len(extents) != len(dims):
            raise UnsupportedError(
                f'"{name}" is {parameter.c_type}{list(extents)} in C, which is no tensor: {ELSE}'
            )
        known = []
        for size, extent in zip(dims, extents, strict=True):
            if extent.isdigit() and max(size, 1) != int(extent):
                raise UnsupportedError(f'"{name}": its size depends on values: {ELSE}')
            known.append(size if extent.isdigit() else -1)
        ports.append(Port(name, DTYPES[parameter.c_type], tuple(known)))
    return ports[: len(names[0])], ports[len(names[0]) :]


def _block(weights: Sequence[Weight], file: Path) -> bytes:
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
    session = _session(model)
    names = (port.name for port in session.get_inputs())
    return list(session.run(None, dict(zip(names, arrays, strict=True))))


@cache
def _session(model: Path) -> Any:
    runtime = need("onnxruntime", "the check", "onnxruntime, or say --no-check")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # what it refuses is counted
    runtime.set_default_logger_severity(4)
    try:
        return runtime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    except runtime.capi.onnxruntime_pybind11_state.Fail as error:  # a later opset or IR
        said = re.sub(r".*/onnxruntime_src/.*?\) ", "", str(error)).strip(". \n")
        raise UnsupportedError(
            f"nothing was written, as ONNX Runtime {runtime.__version__} does not know this model: "
            f"{said}: export an older opset, update onnxruntime, or say --no-check"
        ) from error
