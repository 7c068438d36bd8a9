"""What `shmbridge compile` does: turns a model into a library for `aot://`.

Each source is a module with one function, `build(job) -> Built`: it makes a shared library behind
the ABI of `shmb_model`. `wrap` writes the C that all of them need, `toolchain` runs compilers,
`check` asks the result and the original the same.
"""
