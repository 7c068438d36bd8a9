"""Bridges: their files, those open in this process, and all others."""
