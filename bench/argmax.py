"""argmax.c in Python: argmax.py URL"""

import sys

import numpy as np

import shmbridge

with shmbridge.connect(sys.argv[1]) as runner:
    x = (((np.arange(100) - 20) / 100) ** 2).astype(np.float32)
    print(int(np.argmax(runner.evaluate({"x": x}, dtype=np.float32))))
