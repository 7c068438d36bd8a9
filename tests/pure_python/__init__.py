"""A second implementation of shm://: a runner and a host in Python's standard library.

It was written from docs/protocol.md alone, to show that the page suffices. A change of the wire
format must first change that page. Numbers in parentheses are its steps.

It runs on x86-64, where every load acquires and every store releases.
"""
