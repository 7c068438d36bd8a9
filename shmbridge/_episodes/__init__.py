"""The episodes of n compilers in arrays, which C steps."""
