"""A second implementation of shm://: a runner and a host in Python.

Its first version was written from docs/protocol.md alone. Where it had to guess, the page was
completed, and this code follows the page. A change of the wire format must first change that page.
Only the header codec is shared with other tests. Numbers in parentheses are the page's steps.

It runs on x86-64, where every load acquires and every store releases.
"""
