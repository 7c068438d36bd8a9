/* What is used of LiteRT, checked against litert/c/{*.h,internal/litert_logging.h} of LiteRT v2.2.0
 * and of the sources of 2026-08-21, on their way to 2.3.0, which agree in all of this. The library
 * exports no version of itself. */
#ifndef SHMB_LITERT_H
#define SHMB_LITERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shmbridge.h"

struct layout_of {
    unsigned rank : 7;
    unsigned has_strides : 1;
    int32_t dims[SHMB_MAX_RANK];
    uint32_t strides[SHMB_MAX_RANK];
};
struct type_of {
    int32_t element;
    struct layout_of layout;
};
struct environment_option {
    int32_t tag;
    struct {
        int32_t type;
        int64_t value;
    } any;
};
typedef struct opaque *handle;

/* LiteRT's numbers: an accelerator, the kind of an option's value, two options of an environment, a
 * severity, a status. */
enum { CPU = 1, INTEGER = 2, ACCELERATORS = 24, SEVERITY = 25, SILENT = 4, NO_MODEL = 501 };

/* The functions that are used, by their names without LiteRt; each returns a status, 0 when it went
 * well, but for Destroy…. */
#define FUNCTIONS(F)                                                                               \
    F(int, CreateEnvironment, (int, const struct environment_option *, handle *))                  \
    F(void, DestroyEnvironment, (handle))                                                          \
    F(int, CreateModelFromBuffer, (handle, const void *, size_t, handle *))                        \
    F(void, DestroyModel, (handle))                                                                \
    F(int, GetNumModelSignatures, (handle, size_t *))                                              \
    F(int, GetModelSignature, (handle, size_t, handle *))                                          \
    F(int, GetSignatureKey, (handle, const char **))                                               \
    F(int, GetNumSignatureInputs, (handle, size_t *))                                              \
    F(int, GetSignatureInputName, (handle, size_t, const char **))                                 \
    F(int, GetSignatureInputTensorByIndex, (handle, size_t, handle *))                             \
    F(int, GetNumSignatureOutputs, (handle, size_t *))                                             \
    F(int, GetSignatureOutputName, (handle, size_t, const char **))                                \
    F(int, GetSignatureOutputTensorByIndex, (handle, size_t, handle *))                            \
    F(int, GetRankedTensorType, (handle, struct type_of *))                                        \
    F(int, CreateOptions, (handle *))                                                              \
    F(void, DestroyOptions, (handle))                                                              \
    F(int, SetOptionsHardwareAccelerators, (handle, int))                                          \
    F(int, CreateOpaqueOptions, (const char *, void *, void (*)(void *), handle *))                \
    F(int, AddOpaqueOptions, (handle, handle))                                                     \
    F(int, CreateCompiledModel, (handle, handle, handle, handle *))                                \
    F(void, DestroyCompiledModel, (handle))                                                        \
    F(int, SetCompiledModelCancellationFunction, (handle, void *, bool (*)(void *)))               \
    F(int, CompiledModelResizeInputTensor, (handle, size_t, size_t, const int *, size_t))          \
    F(int, GetCompiledModelOutputTensorLayouts,                                                    \
      (handle, size_t, size_t, struct layout_of *, bool))                                          \
    F(int, CreateTensorBufferFromHostMemory,                                                       \
      (const struct type_of *, void *, size_t, void (*)(void *), handle *))                        \
    F(void, DestroyTensorBuffer, (handle))                                                         \
    F(int, RunCompiledModel, (handle, size_t, size_t, handle *, size_t, handle *))                 \
    F(int, CompiledModelGetErrorMessages, (handle, char **))                                       \
    F(int, CompiledModelClearErrors, (handle))

#define MEMBER(result, name, arguments) result(*name) arguments;
struct litert {
    FUNCTIONS(MEMBER)
};

#endif
