"""From a TensorFlow SavedModel, by XLA's ahead-of-time compiler (saved_model_cli aot_compile_cpu).
We use the code of its operations and the plan that calls them. 40 lines here replace its runtime,
which needs Abseil and Eigen."""

import os
import platform
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shmbridge._compile.toolchain import BuildDirectory, Built, CompileError, need
from shmbridge._compile.wrap import Port, entry
from shmbridge.errors import InvalidError, UnsupportedError

KNOWN = {"dot_lib", "kernel_c_api"}  # of XLA's runtime: what the C++ below has, or only types
ELSE = "export it to ONNX (tf2onnx) and compile that, or use python://"


def build(job: BuildDirectory) -> Built:
    """Errors: InvalidError, UnsupportedError, CompileError."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    tf = need("tensorflow", "compiling TensorFlow models", "tensorflow-cpu")
    folder, key = job.model, job.signature or "serving_default"
    try:
        loaded = tf.saved_model.load(str(folder))
    except Exception as error:  # of any kind
        raise CompileError(
            f"{folder}: expected a TensorFlow SavedModel: {type(error).__name__}: {error}"
        ) from error
    if key not in loaded.signatures:
        raise InvalidError(
            f"{folder}: no signature {key!r}: expected one of "
            f"{', '.join(loaded.signatures) or '(it has none)'}"
        )
    function = loaded.signatures[key]
    given = function.structured_input_signature[1]
    shapes = {name: _fix(name, spec, job.sizes) for name, spec in given.items()}
    specs = {
        name: tf.TensorSpec(shapes[name], spec.dtype, name=name) for name, spec in given.items()
    }
    function = tf.function(
        lambda **features: loaded.signatures[key](**features)
    ).get_concrete_function(**specs)
    folder = _frozen(tf, job, function, key)
    inputs = [Port(name, spec.dtype.name, shapes[name]) for name, spec in sorted(given.items())]
    outputs = [_output(name, spec) for name, spec in sorted(function.structured_outputs.items())]
    _compile(job, folder, key)
    text = _adapt((job.folder / "xla.h").read_text())
    (job.folder / "xla.h").write_text(text)
    includes = "\n".join(re.findall(r"^// (#include.*)", text, re.MULTILINE))
    table = "s->table[Model::{}IndexToBufferIndex()[{}]]"
    to_table = (
        f"    {table.format('Arg', k)} = const_cast<void *>(inputs[{i}].data);"
        for i, k in _order(text, "Arg", "feed_", inputs)
    )
    from_table = (
        f"    memcpy(const_cast<void *>(outputs[{i}].data), {table.format('Result', k)}, "
        f"{outputs[i].bytes});"
        for i, k in _order(text, "Result", "fetch_", outputs)
    )
    parts = {
        "includes": includes,
        "inputs": "\n".join(to_table),
        "outputs": "\n".join(from_table),
        "entry": entry(inputs, outputs),
    }
    source = job.folder / "aot.cc"
    source.write_text(_CODE % parts)
    include = f"-I{tf.sysconfig.get_include()}"
    sections = ["-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections", "-Wl,-z,defs"]
    link = ["-std=c++17", "-I.", include, *sections, "xla.o"]
    constants = ["xla_constants.o"] if (job.folder / "xla_constants.o").exists() else []

    def reference(arrays: Sequence[Any]) -> Sequence[Any]:
        names = (port.name for port in inputs)
        advice = function(**dict(zip(names, map(tf.constant, arrays), strict=True)))
        return [advice[port.name].numpy() for port in outputs]

    return Built(source, inputs, outputs, reference, "TensorFlow", [*link, *constants], False)


def _frozen(tf: Any, job: BuildDirectory, function: Any, key: str) -> Path:
    """A SavedModel of the function with its variables as constants, since XLA's command does not
    find the variables of Keras 3."""
    module = need(
        "tensorflow.python.framework.convert_to_constants", "TensorFlow", "tensorflow-cpu"
    )
    constant = module.convert_variables_to_constants_v2(function, lower_control_flow=False)
    names = sorted(function.structured_outputs)
    signature = tf.function(
        lambda **features: dict(zip(names, tf.nest.flatten(constant(**features)), strict=True))
    ).get_concrete_function(**function.structured_input_signature[1])
    folder = job.folder / "frozen"
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(tf.Module(), str(folder), {key: signature}, options)
    return folder


def _fix(name: str, spec: Any, sizes: dict[str, int]) -> tuple[int, ...]:
    """The shape with its open dimensions as the user gave them: NAME:AXIS=SIZE."""
    if spec.shape.rank is None:
        raise UnsupportedError(f'the input "{name}" has no rank: {ELSE}')
    shape = [sizes.get(f"{name}:{axis}", size) for axis, size in enumerate(spec.shape)]
    for axis, size in enumerate(shape):
        if size is None:
            raise InvalidError(
                f'the input "{name}" is {spec.dtype.name}{spec.shape.as_list()}: XLA needs every '
                f"size: pass --dim {name}:{axis}=SIZE"
            )
    return tuple(int(size) for size in shape if size is not None)


def _output(name: str, spec: Any) -> Port:
    if not spec.shape.is_fully_defined():
        raise UnsupportedError(f'the size of the output "{name}" depends on values: {ELSE}')
    return Port(name, spec.dtype.name, tuple(spec.shape))


def _compile(job: BuildDirectory, folder: Path, key: str) -> None:
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
    tool = [sys.executable, "-m", "tensorflow.python.tools.saved_model_cli", "aot_compile_cpu"]
    model = ["--dir", str(folder), "--tag_set", "serve", "--signature_def_key", key]
    made = ["--output_prefix", f"{job.folder}/xla", "--cpp_class", "Model"]
    target = ["--target_triple", f"{platform.machine()}-pc-linux"]
    try:
        job.run(*tool, *model, *made, *target, environment=quiet)
    except CompileError as error:
        raise CompileError(f"{error}\nif XLA lacks an operation: {ELSE}") from error


def _adapt(text: str) -> str:
    """XLA's header for the C++ below: its includes stand there."""
    used = set(re.findall(r'^#include "xla/backends/cpu/runtime/(\w+)\.h"', text, re.MULTILINE))
    if used - KNOWN or re.search(r"rng_states\[", text):
        lacking = ", ".join(sorted(used - KNOWN)) or "random numbers"
        raise UnsupportedError(
            f"the model calls {lacking} of XLA's runtime, which takes Abseil to link: {ELSE}"
        )
    replaced = r'^#include ("xla/backends/cpu/runtime/dot_lib|"absl/synchronization).*\n'
    text = re.sub(replaced, "", text, flags=re.MULTILINE)
    text = text.replace("run_options->intra_op_thread_pool()", "nullptr")
    text = text.replace("absl::BlockingCounter", "Done")
    text = re.sub(r"(::)?xla::cpu::internal::TypedMatMul", "multiply", text)
    return re.sub(r"^#include", "// #include", text, flags=re.MULTILINE)


def _order(text: str, what: str, prefix: str, ports: Sequence[Port]) -> list[tuple[int, int]]:
    """(which port, which of XLA's) of those that XLA has."""
    found = re.search(
        rf"Static{what}Names\(\) \{{\s*static const char\* kNames\[\] = \{{(.*?)nullptr\}}",
        text,
        re.DOTALL,
    )
    if not found:
        raise CompileError(
            "expected XLA's header to name arguments and results, found none: this version of "
            "TensorFlow is not supported"
        )
    mangled = [prefix + port.name.replace("/", "_") for port in ports]
    return [
        (mangled.index(name), k)
        for k, name in enumerate(re.findall(r'"([^"]*)"', found[1]))
        if name in mangled
    ]


_CODE = r"""#include <cstdlib>
#include <cstring>
#include <new>
#include <shmbridge/model.h>
%(includes)s
/* XLA's products of matrices, column by column; it waits for the end of each, which has come. */
struct Done {
    explicit Done(int) {}
    void DecrementCount() {}
    void Wait() {}
};
template <typename Out, typename Left, typename Right, typename Callback>
static void multiply(const void *, Out *__restrict out, const Left *left, const Right *right,
    int64_t m, int64_t n, int64_t k, int32_t left_turned,
                     int32_t right_turned, Callback) {
    for (int64_t j = 0; j < n; j++) {
        Out *column = out + j * m;
        for (int64_t i = 0; i < m; i++) column[i] = Out(0);
        for (int64_t p = 0; p < k; p++) {
            const Out factor = Out(right_turned ? right[j + p * n] : right[p + j * k]);
            if (left_turned)
                for (int64_t i = 0; i < m; i++) column[i] += Out(left[p + i * k]) * factor;
            else
                for (int64_t i = 0; i < m; i++) column[i] += Out(left[i + p * m]) * factor;
        }
    }
}

#define private public /* the plan is, and its class would need Abseil */
#include "xla.h"
#undef private

using Plan = decltype(Model::ThunkRunImplFunction());
using Random = std::vector<std::unique_ptr<xla::cpu::RngState>>;

struct State {
    void *table[Model::kNumBuffers];
    Plan plan;
};

static void close_model(void *state) {
    State *s = static_cast<State *>(state);
    for (size_t i = 0; i < Model::kNumBuffers; i++) {
        const auto &buffer = Model::BufferAllocationInfos()[i];
        if (!buffer.is_constant() && !buffer.is_entry_parameter()) free(s->table[i]);
    }
    delete s;
}

static const char *open_model(const char *weights, void **state) {
    if (weights) return "its weights are inside: leave weights=FILE out";
    State *s = new (std::nothrow) State{{}, Model::ThunkRunImplFunction()};
    if (!s) return "no memory for the model";
    const auto constants = Model::EmbeddedConstantBuffers();
    size_t next = 0;
    bool enough = true;
    for (size_t i = 0; i < Model::kNumBuffers; i++) {
        const auto &buffer = Model::BufferAllocationInfos()[i];
        if (buffer.is_constant()) s->table[i] = constants.at(next++).second;
        else if (!buffer.is_entry_parameter()) {
            s->table[i] = aligned_alloc(64, (buffer.size() + 64) / 64 * 64);
            enough &= s->table[i] != nullptr;
        }
    }
    *state = s;
    if (enough) return nullptr;
    close_model(s);
    return "no memory for the model";
}

static const char *run(void *state, const shmb_tensor *inputs, shmb_tensor *outputs) {
    State *s = static_cast<State *>(state);
    (void)inputs;
    /* never destroyed, which would need Abseil; the model draws no numbers */
    alignas(Random) static unsigned char nothing[sizeof(Random)];
    static Random &random = *new (nothing) Random;
%(inputs)s
    if (!s->plan(s->table, nullptr, random)) return "an operation of the compiled model failed";
%(outputs)s
    return nullptr;
}

extern "C" {%(entry)s}
"""
