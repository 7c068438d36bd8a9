"""The search of `shmbridge tune`: the inlining decisions of clang that make a score smaller."""
