"""Bridges below /dev/shm: their files, those that this process has open, and all that exist."""
