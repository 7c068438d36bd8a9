"""The search of `shmbridge tune`: attributes of functions that make a score smaller."""
