"""What `shmbridge demo` runs besides the examples: a toy model."""
