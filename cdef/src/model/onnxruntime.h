/* What is used of ONNX Runtime's C API: positions in its function table, which only ever grows at
 * its end, and types. Facts of the interface, from API version 12 on (ONNX Runtime 1.12). */
#ifndef SHMB_ONNXRUNTIME_H
#define SHMB_ONNXRUNTIME_H

#include <stddef.h>
#include <stdint.h>

typedef struct OrtStatus OrtStatus;
typedef struct OrtEnv OrtEnv;
typedef struct OrtSession OrtSession;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtRunOptions OrtRunOptions;
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtAllocator OrtAllocator;
typedef struct OrtValue OrtValue;
typedef struct OrtIoBinding OrtIoBinding;
typedef struct OrtTypeInfo OrtTypeInfo;
typedef struct OrtTensorTypeAndShapeInfo OrtTensorTypeAndShapeInfo;

enum { ORT_API = 12 };
enum { ORT_TENSOR = 1 }; /* of kinds of values */
enum { ORT_LOG_FATAL = 4 };
enum { ORT_DEVICE_ALLOCATOR = 0, ORT_MEMORY_DEFAULT = 0 };
enum {
    ORT_FLOAT = 1,
    ORT_UINT8 = 2,
    ORT_INT8 = 3,
    ORT_UINT16 = 4,
    ORT_INT16 = 5,
    ORT_INT32 = 6,
    ORT_INT64 = 7,
    ORT_BOOL = 9,
    ORT_FLOAT16 = 10,
    ORT_DOUBLE = 11,
    ORT_UINT32 = 12,
    ORT_UINT64 = 13,
    ORT_BFLOAT16 = 16
};

/* X(name, position, result, parameters) */
#define ORT_FUNCTIONS(X)                                                                           \
    X(GetErrorMessage, 2, const char *, (const OrtStatus *))                                       \
    X(CreateEnv, 3, OrtStatus *, (int level, const char *id, OrtEnv **))                           \
    X(CreateSession, 7, OrtStatus *,                                                               \
      (const OrtEnv *, const char *path, const OrtSessionOptions *, OrtSession **))                \
    X(Run, 9, OrtStatus *,                                                                         \
      (OrtSession *, const OrtRunOptions *, const char *const *names,                              \
       const OrtValue *const *inputs, size_t input_count, const char *const *output_names,         \
       size_t output_count, OrtValue **outputs))                                                   \
    X(CreateSessionOptions, 10, OrtStatus *, (OrtSessionOptions **))                               \
    X(DisableCpuMemArena, 19, OrtStatus *, (OrtSessionOptions *))                                  \
    X(SetIntraOpNumThreads, 24, OrtStatus *, (OrtSessionOptions *, int threads))                   \
    X(SessionGetInputCount, 30, OrtStatus *, (const OrtSession *, size_t *))                       \
    X(SessionGetOutputCount, 31, OrtStatus *, (const OrtSession *, size_t *))                      \
    X(SessionGetInputTypeInfo, 33, OrtStatus *, (const OrtSession *, size_t, OrtTypeInfo **))      \
    X(SessionGetOutputTypeInfo, 34, OrtStatus *, (const OrtSession *, size_t, OrtTypeInfo **))     \
    X(SessionGetInputName, 36, OrtStatus *, (const OrtSession *, size_t, OrtAllocator *, char **)) \
    X(SessionGetOutputName, 37, OrtStatus *,                                                       \
      (const OrtSession *, size_t, OrtAllocator *, char **))                                       \
    X(CreateRunOptions, 39, OrtStatus *, (OrtRunOptions **))                                       \
    X(RunOptionsSetTerminate, 46, OrtStatus *, (OrtRunOptions *))                                  \
    X(RunOptionsUnsetTerminate, 47, OrtStatus *, (OrtRunOptions *))                                \
    X(CreateTensorWithDataAsOrtValue, 49, OrtStatus *,                                             \
      (const OrtMemoryInfo *, void *data, size_t bytes, const int64_t *dims, size_t rank,          \
       int element, OrtValue **))                                                                  \
    X(GetTensorMutableData, 51, OrtStatus *, (OrtValue *, void **))                                \
    X(CastTypeInfoToTensorInfo, 55, OrtStatus *,                                                   \
      (const OrtTypeInfo *, const OrtTensorTypeAndShapeInfo **))                                   \
    X(GetOnnxTypeFromTypeInfo, 56, OrtStatus *, (const OrtTypeInfo *, int *kind))                  \
    X(GetTensorElementType, 60, OrtStatus *, (const OrtTensorTypeAndShapeInfo *, int *element))    \
    X(GetDimensionsCount, 61, OrtStatus *, (const OrtTensorTypeAndShapeInfo *, size_t *))          \
    X(GetDimensions, 62, OrtStatus *, (const OrtTensorTypeAndShapeInfo *, int64_t *, size_t))      \
    X(GetTensorTypeAndShape, 65, OrtStatus *, (const OrtValue *, OrtTensorTypeAndShapeInfo **))    \
    X(CreateCpuMemoryInfo, 69, OrtStatus *, (int allocator, int memory, OrtMemoryInfo **))         \
    X(AllocatorFree, 76, OrtStatus *, (OrtAllocator *, void *))                                    \
    X(GetAllocatorWithDefaultOptions, 78, OrtStatus *, (OrtAllocator **))                          \
    X(ReleaseStatus, 93, void, (OrtStatus *))                                                      \
    X(ReleaseMemoryInfo, 94, void, (OrtMemoryInfo *))                                              \
    X(ReleaseSession, 95, void, (OrtSession *))                                                    \
    X(ReleaseValue, 96, void, (OrtValue *))                                                        \
    X(ReleaseRunOptions, 97, void, (OrtRunOptions *))                                              \
    X(ReleaseTypeInfo, 98, void, (OrtTypeInfo *))                                                  \
    X(ReleaseTensorTypeAndShapeInfo, 99, void, (OrtTensorTypeAndShapeInfo *))                      \
    X(ReleaseSessionOptions, 100, void, (OrtSessionOptions *))                                     \
    X(RunWithBinding, 133, OrtStatus *,                                                            \
      (OrtSession *, const OrtRunOptions *, const OrtIoBinding *))                                 \
    X(CreateIoBinding, 134, OrtStatus *, (OrtSession *, OrtIoBinding **))                          \
    X(ReleaseIoBinding, 135, void, (OrtIoBinding *))                                               \
    X(BindInput, 136, OrtStatus *, (OrtIoBinding *, const char *name, const OrtValue *))           \
    X(BindOutput, 137, OrtStatus *, (OrtIoBinding *, const char *name, const OrtValue *))          \
    X(SessionOptionsAppendExecutionProvider, 216, OrtStatus *,                                     \
      (OrtSessionOptions *, const char *name, const char *const *keys, const char *const *values,  \
       size_t count))

typedef void (*OrtFunction)(void);
typedef struct OrtApiBase {
    const OrtFunction *(*GetApi)(uint32_t version); /* NULL: an older library */
    const char *(*GetVersionString)(void);
} OrtApiBase;

#define ORT_POSITION(name, position, result, parameters) ORT_##name = (position),
enum { ORT_FUNCTIONS(ORT_POSITION) };
#define ORT_TYPE(name, position, result, parameters) typedef result(*Ort##name##Fn) parameters;
ORT_FUNCTIONS(ORT_TYPE)

/* ORT(table, Name)(…) calls a function of the table. */
#define ORT(table, name) ((Ort##name##Fn)(table)[ORT_##name])

#endif
