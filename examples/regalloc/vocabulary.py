"""Trains a MIR2Vec vocabulary of 100 dimensions on C files, for -mir2vec-vocab-path.

python vocabulary.py OUT.json FILE.c...

llvm-ir2vec's triplets say which opcodes follow each other, and which operands they have. Each entity's
vector is its row of the matrix of these counts, reduced by a singular value decomposition.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

SIZE = 100


def ir2vec(what, source, folder):
    """The lines of `llvm-ir2vec triplets` or `entities` for a C file."""
    ir, mir, out = folder / "a.ll", folder / "a.mir", folder / "out.txt"
    subprocess.run(["clang-22", "-O2", "-w", "-S", "-emit-llvm", source, "-o", ir], check=True)
    subprocess.run(["llc-22", "-O2", "-stop-before=greedy", ir, "-o", mir], check=True)
    subprocess.run(["llvm-ir2vec-22", what, "--mode=mir", mir, "-o", out], check=True)
    return out.read_text().splitlines()[1:]


def section(name, common):
    """Where LLVM looks for an entity, and its name there. common: it is no opcode."""
    for prefix, part in (("PhyReg_", "PhysicalRegisters"), ("VirtReg_", "VirtualRegisters")):
        if name.startswith(prefix):
            return part, name.removeprefix(prefix)
    return "CommonOperands" if common else "Opcodes", name


def main(out, *sources):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        entities = [line.split("\t")[0] for line in ir2vec("entities", sources[0], folder)]
        counts = np.zeros((len(entities), len(entities)), np.float32)
        for source in sources:
            for line in ir2vec("triplets", source, folder):
                head, tail, _ = map(int, line.split("\t"))
                counts[[head, tail], [tail, head]] += 1
    seen = np.flatnonzero(counts.sum(axis=0))
    left, values, _ = np.linalg.svd(np.log1p(counts[np.ix_(seen, seen)]))
    vectors = np.zeros((len(entities), SIZE))
    width = min(SIZE, len(seen))
    vectors[seen, :width] = left[:, :width] * np.sqrt(values[:width])
    sections = {}
    for i, vector in enumerate(vectors.round(4).tolist()):
        part, key = section(entities[i], i >= entities.index("Immediate"))  # the first that is none
        sections.setdefault(part, {})[key] = vector
    Path(out).write_text(json.dumps(sections))


if __name__ == "__main__":
    main(*sys.argv[1:])
