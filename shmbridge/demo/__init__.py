"""The toy model of `shmbridge demo`."""
