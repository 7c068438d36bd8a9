"""Unmodified compilers: the flags that make them ask, and the library that asks for them."""
