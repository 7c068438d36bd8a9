"""Implements `shmbridge compile`: compiles a model to a library for `aot://`.

Each source is a module with one function, `build(job) -> Built`, which makes a shared library with
the ABI of `shmb_model`. `wrap` writes their common C code, `toolchain` runs compilers, `check`
compares the result with the original.
"""
