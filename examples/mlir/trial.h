// Runs a module's matmul by MLIR's just-in-time compiler, and takes the time.

#ifndef TRIAL_H
#define TRIAL_H

#include "mlir/IR/BuiltinOps.h"

struct Shape {
    int64_t m, n, k;
};

// Seconds of CPU of one call of `name`, a function of three memrefs of float32: a[m][k], b[k][n], and c[m][n], to which it adds
// their product. The shortest of several calls. The module is lowered to LLVM's dialect on the way.
// Errors: it cannot be lowered, or c is not the product; the module emits the error.
mlir::FailureOr<double> secondsOf(mlir::ModuleOp module, llvm::StringRef name, Shape shape);

#endif
