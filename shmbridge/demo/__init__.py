"""What `shmbridge demo` runs besides the examples: a toy model, and named pipes to compare shared memory with."""
