"""From a PyTorch export, by AOTInductor, which writes C++. That calls libtorch's C functions, for
memory and for the operations that it leaves to libtorch: the library needs libtorch_cpu.so, and
finds the one of the PyTorch that compiled it."""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shmbridge._compile.toolchain import BuildDirectory, Built, CompileError, need
from shmbridge._compile.wrap import ROOM, Port, entry
from shmbridge.errors import UnsupportedError

ELSE = "export it to ONNX (torch.onnx.export) and compile that, or use python://"


def build(job: BuildDirectory) -> Built:
    """Errors: UnsupportedError, CompileError."""
    if job.weights:
        raise UnsupportedError(
            f"AOTInductor compiles the weights in: leave --weights out, or {ELSE}"
        )
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(job.folder / "cache")
    # No pool of processes for one model.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    torch = need("torch", "compiling PyTorch models", "torch")
    need("torch._inductor", "compiling PyTorch models", "torch>=2.6")
    try:
        program = torch.export.load(job.model)
    except Exception as error:  # of any kind
        raise CompileError(
            f"{job.model}: expected what torch.export.save writes: {type(error).__name__}: {error}"
        ) from error
    inputs, outputs = _ports(torch, program)
    package = job.folder / "model.pt2"
    # one thread: the compiler that asks has threads of its own; the plain instruction set
    options = {"aot_inductor.package_cpp_only": True, "cpp.threads": 1, "cpp.simdlen": 1}
    if hasattr(torch._inductor.config.aot_inductor, "precompile_headers"):
        options["aot_inductor.precompile_headers"] = False  # which pays for many models
    try:
        torch._inductor.aoti_compile_and_package(
            program, package_path=str(package), inductor_configs=options
        )
    except Exception as error:  # of any kind
        raise CompileError(f"AOTInductor cannot compile this model: {error}\n{ELSE}") from error
    origin = f"{job.model.name}, by AOTInductor of PyTorch {torch.__version__}"
    source = job.folder / "aot.cc"
    source.write_text(_CODE % (ROOM, _checks(inputs, outputs), entry(inputs, outputs, origin)))

    def reference(arrays: Sequence[Any]) -> Sequence[Any]:
        args, kwargs = torch.utils._pytree.tree_unflatten(
            [torch.from_numpy(array) for array in arrays], program.call_spec.in_spec
        )
        with torch.no_grad():
            found = program.module()(*args, **kwargs)
        return [tensor.numpy() for tensor in torch.utils._pytree.tree_flatten(found)[0]]

    flags = _flags(job, package, Path(torch.__file__).parent)
    return Built(source, None, inputs, outputs, reference, "PyTorch", flags)


def _ports(torch: Any, program: Any) -> tuple[list[Port], list[Port]]:
    """Inputs have their names in the export; the outputs those of the dict that the module returns,
    else output or output0, output1, …"""
    signature = program.graph_signature
    nodes = {node.name: node for node in program.graph.nodes}
    kept: list[list[Port]] = []
    count = len(signature.user_outputs)
    shape = torch.utils._pytree.tree_unflatten(list(range(count)), program.call_spec.out_spec)
    names = ["output"] if count == 1 else [f"output{i}" for i in range(count)]
    if isinstance(shape, dict) and all(isinstance(index, int) for index in shape.values()):
        for name, index in shape.items():
            names[index] = str(name)
    for wanted, called in (
        (signature.user_inputs, signature.user_inputs),
        (signature.user_outputs, names),
    ):
        ports = []
        for node, name in zip(wanted, called, strict=True):
            value = nodes[node].meta.get("val") if isinstance(node, str) and node in nodes else None
            if not isinstance(value, torch.Tensor):
                raise UnsupportedError(f'"{name}" is no tensor: {ELSE}')
            dims = tuple(size if isinstance(size, int) else -1 for size in value.shape)
            ports.append(Port(name, str(value.dtype).removeprefix("torch."), dims))
        kept.append(ports)
    return kept[0], kept[1]


def _flags(job: BuildDirectory, package: Path, torch: Path) -> list[str | Path]:
    """What compiles and links the generated C++ beside the shim."""
    with zipfile.ZipFile(package) as archive:
        archive.extractall(job.folder / "generated")
    sources = sorted((job.folder / "generated").rglob("*.cpp"))
    described = [
        json.loads(file.read_text())
        for file in (job.folder / "generated").rglob("*_compile_flags.json")
    ]
    if not sources or not described:
        raise CompileError(
            "expected C++ and its flags from AOTInductor, found none: this version of PyTorch is "
            "not supported"
        )
    ours = "march|shared|W|O|g|fPIC|fopenmp|pedantic|fno-tree-loop-vectorize|fno-omit-frame-pointer"
    flags = dict.fromkeys(
        f"-{flag}" for each in described for flag in each["cflags"] if not re.match(ours, flag)
    )
    defined = dict.fromkeys(
        f"-D{word.strip()}" for each in described for word in each["definitions"]
    )
    libraries = torch / "lib"
    return [
        *flags,
        *defined,
        f"-I{torch / 'include'}",
        f"-I{torch / 'include/torch/csrc/api/include'}",
        *sources,
        *sorted((job.folder / "generated").rglob("*.o")),
        f"-L{libraries}",
        f"-Wl,-rpath,{libraries}",
        "-ltorch_cpu",
        "-ltorch",
        "-lc10",
        "-Wl,-Bsymbolic",
        "-Wl,-z,nodelete",  # libtorch's threads and their data outlive any runner
    ]


def _checks(inputs: Sequence[Port], outputs: Sequence[Port]) -> str:
    """Tables for the C++: torch's dtypes, and which outputs have open sizes."""
    into = ", ".join(f"aoti_torch_dtype_{port.dtype}()" for port in inputs)
    bound = ", ".join("false" if port.fixed else "true" for port in outputs)
    size = f"enum {{ INPUTS = {len(inputs)}, OUTPUTS = {len(outputs)} }};"
    return (
        f"{size}\nstatic const int32_t dtypes[INPUTS + 1] = {{{into}}};\n"
        f"static const bool open_sizes[OUTPUTS] = {{{bound}}};"
    )


_CODE = r"""#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <shmbridge/model.h>
#include <torch/csrc/inductor/aoti_runtime/interface.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
%s
%s

struct State {
    AOTInductorModelContainerHandle container;
    struct out out[OUTPUTS];
};

static void close_model(void *state) {
    State *s = static_cast<State *>(state);
    if (s->container) AOTInductorModelContainerDelete(s->container);
    for (auto &o : s->out) free(o.data);
    delete s;
}

static const char *open_model(const char *weights, void **state) {
    if (weights) return "its weights are inside: leave weights=FILE out";
    State *s = new (std::nothrow) State{};
    if (!s) return "no memory for the model";
    *state = s;
    if (!AOTInductorModelContainerCreateWithDevice(&s->container, 1, "cpu", nullptr))
        return nullptr;
    close_model(s);
    return "AOTInductor does not make the model: stderr says why";
}

/* Row by row what may be a view of any strides. */
static unsigned char *gather(unsigned char *to, const unsigned char *from, int rank,
    const int64_t *sizes, const int64_t *strides, size_t element) {
    if (!rank) return static_cast<unsigned char *>(memcpy(to, from, element)) + element;
    if (rank == 1 && *strides == 1) {
        memcpy(to, from, *sizes * element);
        return to + *sizes * element;
    }
    for (int64_t i = 0; i < *sizes; i++)
        to = gather(to, from + i * *strides * static_cast<int64_t>(element), rank - 1, sizes + 1,
                    strides + 1, element);
    return to;
}

static const char *take(State *s, int i, AtenTensorHandle from, shmb_tensor *to) {
    int64_t rank = 0, *sizes = nullptr, *strides = nullptr;
    int32_t dtype = 0;
    void *data = nullptr;
    if (aoti_torch_get_dim(from, &rank) || aoti_torch_get_sizes(from, &sizes) ||
        aoti_torch_get_strides(from, &strides) || aoti_torch_get_dtype(from, &dtype) ||
        aoti_torch_get_data_ptr(from, &data) || rank != to->rank)
        return "AOTInductor returned an output whose rank differs from the export";
    const size_t element = aoti_torch_dtype_element_size(dtype);
    if (open_sizes[i]) {
        if (!make_room(&s->out[i], to, static_cast<int>(rank), sizes, element))
            return "no memory for the model";
    } else if (rank && memcmp(sizes, to->dims, rank * sizeof *sizes) != 0) {
        return "AOTInductor returned an output whose shape differs from the export";
    }
    if (to->size) gather(static_cast<unsigned char *>(const_cast<void *>(to->data)),
        static_cast<unsigned char *>(data), static_cast<int>(rank), sizes, strides, element);
    return nullptr;
}

static const char *run(void *state, const shmb_tensor *inputs, shmb_tensor *outputs) {
    State *s = static_cast<State *>(state);
    AtenTensorHandle given[INPUTS + 1] = {}, found[OUTPUTS] = {};
    for (int i = 0; i < INPUTS; i++) {
        int64_t strides[SHMB_MAX_RANK], stride = 1;
        for (int k = inputs[i].rank; k-- > 0; stride *= inputs[i].dims[k]) strides[k] = stride;
        if (aoti_torch_create_tensor_from_blob(const_cast<void *>(inputs[i].data), inputs[i].rank,
            inputs[i].dims, strides, 0, dtypes[i],
                                               aoti_torch_device_type_cpu(), 0, &given[i])) {
            while (i-- > 0) aoti_torch_delete_tensor_object(given[i]);
            return "libtorch rejects this input: see stderr";
        }
    }
    if (AOTInductorModelContainerRun(s->container, given, INPUTS, found, OUTPUTS, nullptr,
        nullptr)) {
        const char *why = nullptr;
        bool silent = AOTInductorGetLastError(&why) || !why || !*why;
        return silent ? "AOTInductor failed: see stderr" : why;
    }
    const char *wrong = nullptr;
    for (int i = 0; i < OUTPUTS; i++) {
        if (!wrong) wrong = take(s, i, found[i], &outputs[i]);
        aoti_torch_delete_tensor_object(found[i]);
    }
    return wrong;
}

extern "C" {%s}
"""
