#include "message/dtype.h"

#define ROW(NAME, text, type, form, llvm_name) [SHMB_##NAME] = {sizeof(type), #text, llvm_name},
const struct dtype shmb_dtypes[DTYPES] = {[SHMB_ANY] = {0, "any", NULL}, SHMB_DTYPES(ROW)};

const char *shmb_dtype_name(shmb_dtype dtype) {
    return (unsigned)dtype < DTYPES ? shmb_dtypes[dtype].name : "unknown";
}

size_t shmb_dtype_size(shmb_dtype dtype) {
    return (unsigned)dtype < DTYPES ? shmb_dtypes[dtype].size : 0;
}
