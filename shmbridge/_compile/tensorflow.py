"""From a TensorFlow SavedModel, by XLA's ahead-of-time compiler (saved_model_cli aot_compile_cpu).
We use the code of its operations and the C++ header that calls them; 40 lines here replace its
runtime, which needs Abseil and Eigen. The extra `tensorflow` pins a minor version, since XLA does
not promise any of this to the next one."""

import os
import platform
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shmbridge._compile.toolchain import BuildDirectory, Built, CompileError, need
from shmbridge._compile.wrap import Port, c_string, entry
from shmbridge.errors import InvalidError, UnsupportedError

KNOWN = {"dot_lib", "kernel_c_api"}  # of XLA's runtime: what the C++ below has, or only types
ELSE = "export it to ONNX (tf2onnx) and compile that, or use python://"


def build(job: BuildDirectory) -> Built:
    """Errors: InvalidError, UnsupportedError, CompileError."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    tf = need("tensorflow", "compiling TensorFlow models", "'shmbridge[tensorflow]'")
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
    _check_runtime((job.folder / "xla.h").read_text())
    source = job.folder / "aot.cc"
    parts = {
        "feeds": _names("feed_", inputs),
        "fetches": _names("fetch_", outputs),
        "bytes": "".join(f"{port.bytes}, " for port in outputs),
        "entry": entry(inputs, outputs),
    }
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
        "tensorflow.python.framework.convert_to_constants", "TensorFlow", "'shmbridge[tensorflow]'"
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


def _check_runtime(header: str) -> None:
    """UnsupportedError if XLA's header calls functions that need Abseil to link."""
    used = set(re.findall(r'^#include "xla/backends/cpu/runtime/(\w+)\.h"', header, re.MULTILINE))
    if used - KNOWN or "rng_states[" in header:
        lacking = ", ".join(sorted(used - KNOWN)) or "random numbers"
        raise UnsupportedError(
            f"the model calls {lacking} of XLA's runtime, which takes Abseil to link: {ELSE}"
        )


def _names(prefix: str, ports: Sequence[Port]) -> str:
    """What XLA calls the ports, in C."""
    return "".join(f"{c_string(prefix + port.name.replace('/', '_'))}, " for port in ports)


_CODE = r"""#include <cstdlib>
#include <cstring>
#include <new>
#include <shmbridge/model.h>
/* What these two headers declare is below, because theirs needs Abseil and Eigen to link. */
#define ABSL_SYNCHRONIZATION_BLOCKING_COUNTER_H_
#define XLA_BACKENDS_CPU_RUNTIME_DOT_LIB_H_
/* The others that xla.h includes; here, `private` still has its meaning. */
#include "absl/log/check.h"
#include "tensorflow/compiler/tf2xla/xla_compiled_cpu_function.h"
#include "tensorflow/core/platform/types.h"
#include "xla/backends/cpu/runtime/kernel_c_api.h"
#include "xla/types.h"

namespace absl {
struct BlockingCounter { /* of products, which are complete when they return */
    explicit BlockingCounter(int) {}
    void DecrementCount() {}
    void Wait() {}
};
}

/* A product of matrices, which are stored column by column. */
namespace xla::cpu::internal {
template <typename Left, typename Right, typename Out, typename Done>
static void TypedMatMul(const void *, Out *__restrict out, const Left *left, const Right *right,
                        int64_t m, int64_t n, int64_t k, bool left_turned, bool right_turned,
                        Done) {
    for (int64_t j = 0; j < n; j++) {
        Out *column = out + j * m;
        for (int64_t i = 0; i < m; i++) column[i] = Out(0);
        for (int64_t p = 0; p < k; p++) {
            const Out factor = Out(right_turned ? right[j + p * n] : right[p + j * k]);
            for (int64_t i = 0; i < m; i++)
                column[i] += Out(left[left_turned ? p + i * k : i + p * m]) * factor;
        }
    }
}
}

/* Products compute in the thread that asks. */
const Eigen::ThreadPoolDevice *xla::ExecutableRunOptions::intra_op_thread_pool() const {
    return nullptr;
}

/* The plan is a private member of Model, whose public ones need Abseil. */
#define private public
#include "xla.h"
#undef private

using Plan = decltype(Model::ThunkRunImplFunction());
using Random = std::vector<std::unique_ptr<xla::cpu::RngState>>;

static const char *const feeds[] = {%(feeds)snullptr}, *const fetches[] = {%(fetches)snullptr};
static const size_t fetched_bytes[] = {%(bytes)s0};

struct State {
    void *table[Model::kNumBuffers], *unused;
    void **fed[sizeof feeds / sizeof *feeds], **fetched[sizeof fetches / sizeof *fetches];
    Plan plan;
};

/* Where the table has what XLA calls by that name. */
static void **find(State *s, const char *name, const char **names, const int32_t *buffers) {
    for (size_t k = 0; names[k]; k++)
        if (!strcmp(names[k], name)) return &s->table[buffers[k]];
    return &s->unused;
}

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
    State *s = new (std::nothrow) State{{}, {}, {}, {}, Model::ThunkRunImplFunction()};
    if (!s) return "no memory for the model";
    for (size_t i = 0; feeds[i]; i++)
        s->fed[i] = find(s, feeds[i], Model::StaticArgNames(), Model::ArgIndexToBufferIndex());
    for (size_t i = 0; fetches[i]; i++) {
        s->fetched[i] =
            find(s, fetches[i], Model::StaticResultNames(), Model::ResultIndexToBufferIndex());
        if (s->fetched[i] != &s->unused) continue;
        delete s;
        return "XLA does not name an output: this version of TensorFlow is not supported";
    }
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
    /* never destroyed, which would need Abseil; the model draws no numbers */
    alignas(Random) static unsigned char nothing[sizeof(Random)];
    static Random &random = *new (nothing) Random;
    xla::ExecutableRunOptions options;
    for (size_t i = 0; feeds[i]; i++) *s->fed[i] = const_cast<void *>(inputs[i].data);
    if (!s->plan(s->table, &options, random)) return "an operation of the compiled model failed";
    for (size_t i = 0; fetches[i]; i++)
        memcpy(const_cast<void *>(outputs[i].data), *s->fetched[i], fetched_bytes[i]);
    return nullptr;
}

extern "C" {%(entry)s}
"""
