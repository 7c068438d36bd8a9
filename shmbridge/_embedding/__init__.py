"""Python inside a C program: libshmbridge-python.so, the library that cffi's embedding generates
for the Python at hand.

It exports what the public headers declare. `build.py` makes it, `start.c` is its hand-written part,
`inside.py` runs in it.
"""
