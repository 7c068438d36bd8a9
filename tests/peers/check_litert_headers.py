"""Compiles what cdef/src/model/litert.h declares of LiteRT against LiteRT's own headers: functions'
results and parameters, structs, numbers, element types. python check_litert_headers.py LITERT,
where LITERT/litert/c/litert_common.h lies (a checkout); needs a C++20 compiler."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

MODEL = Path(__file__).parents[2] / "cdef" / "src" / "model"

# Two types agree if a caller in C cannot tell them apart: enums are int, all pointers to LiteRT's
# own structs are handles.
CHECK = """
#include <type_traits>
#include "litert/c/internal/litert_logging.h"
#include "litert/c/litert_common.h"
#include "litert/c/litert_compiled_model.h"
#include "litert/c/litert_environment.h"
#include "litert/c/litert_environment_options.h"
#include "litert/c/litert_model.h"
#include "litert/c/litert_opaque_options.h"
#include "litert/c/litert_options.h"
#include "litert/c/litert_tensor_buffer.h"
#include "litert/c/litert_tensor_buffer_types.h"
enum { SHMB_MAX_RANK = 8 };
OURS
template <class T> struct plain { using type = T; };
template <class T> requires std::is_enum_v<T> struct plain<T> { using type = int; };
template <class T> struct plain<T *> { using type = typename plain<T>::type *; };
template <class T> struct plain<const T> { using type = const typename plain<T>::type; };
template <class T> requires(std::is_class_v<T> &&
    !requires { sizeof(T); }) struct plain<T> { using type = opaque; };
template <> struct plain<LiteRtLayout> { using type = layout_of; };
template <> struct plain<LiteRtRankedTensorType> { using type = type_of; };
template <> struct plain<LiteRtEnvOption> { using type = environment_option; };
template <class R, class... A> struct plain<R(A...)> { using type =
    typename plain<R>::type(typename plain<A>::type...); };
#define SAME(result, name, arguments) \\
    static_assert(std::is_same_v<plain<decltype(LiteRt##name)>::type, result arguments>, #name);
FUNCTIONS(SAME)
#define PLACE(a, x, b, y) static_assert(offsetof(a, x) == offsetof(b, y)); \\
    static_assert(sizeof(a::x) == sizeof(b::y))
static_assert(sizeof(layout_of) == sizeof(LiteRtLayout) && SHMB_MAX_RANK == LITERT_TENSOR_MAX_RANK);
PLACE(layout_of, dims, LiteRtLayout, dimensions);
PLACE(layout_of, strides, LiteRtLayout, strides);
static_assert(sizeof(type_of) == sizeof(LiteRtRankedTensorType));
PLACE(type_of, element, LiteRtRankedTensorType, element_type);
PLACE(type_of, layout, LiteRtRankedTensorType, layout);
static_assert(sizeof(environment_option) == sizeof(LiteRtEnvOption));
PLACE(environment_option, tag, LiteRtEnvOption, tag);
PLACE(environment_option, any, LiteRtEnvOption, value);
PLACE(decltype(environment_option::any), value, LiteRtAny, int_value);
static_assert(CPU == int(kLiteRtHwAcceleratorCpu) && INTEGER == int(kLiteRtAnyTypeInt));
static_assert(ACCELERATORS == int(kLiteRtEnvOptionTagAutoRegisterAccelerators));
static_assert(SEVERITY == int(kLiteRtEnvOptionTagMinLoggerSeverity));
static_assert(SILENT == int(kLiteRtLogSeveritySilent));
static_assert(NO_MODEL == int(kLiteRtStatusErrorInvalidFlatbuffer) && kLiteRtStatusOk == 0 &&
    kLiteRtErrorReporterModeBuffer == 2);
static_assert(LITERT_HOST_MEMORY_BUFFER_ALIGNMENT <= 64);
"""


def check(headers):
    """The exit status of the compiler, which prints what does not agree."""
    text = "".join((MODEL / name).read_text() for name in ("litert.h", "tflite.c"))
    ours = text[text.index("/* LiteRT's structs. */") : text.index("#define MEMBER")]
    dtypes = re.findall(r"\[(\d+)\] = SHMB_(\w+)", text)
    names = {
        name: name.title().replace("Uint", "UInt").replace("Bfloat", "BFloat") for _, name in dtypes
    }
    elements = "".join(
        f"static_assert(kLiteRtElementType{names[name]} == {number});\n" for number, name in dtypes
    )
    with tempfile.TemporaryDirectory() as made:
        config = Path(made, "litert", "build_common", "build_config.h")  # LiteRT's build makes it
        config.parent.mkdir(parents=True)
        config.touch()
        command = [
            os.environ.get("CXX", "c++"),
            "-std=c++20",
            "-fsyntax-only",
            "-x",
            "c++",
            "-I",
            str(headers),
            "-I",
            made,
            "-",
        ]
        return subprocess.run(
            command, input=CHECK.replace("\nOURS\n", f"\n{ours}\n") + elements, text=True
        ).returncode


if __name__ == "__main__":
    sys.exit(check(sys.argv[1]))
