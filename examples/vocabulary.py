"""Trains a vocabulary for LLVM's IR2Vec or MIR2Vec on C files: -ir2vec-vocab-path, -mir2vec-vocab-path.

python vocabulary.py ir OUT.json FILE.c...      # 300 dimensions, of LLVM's IR
python vocabulary.py mir OUT.json FILE.c...     # 100 dimensions, of machine instructions

llvm-ir2vec's triplets say which instructions follow each other, and which types and operands they have.
TransE (Bordes et al., 2013) learns a vector for each entity, as IR2Vec's authors do.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

SIZES = {"ir": 300, "mir": 100}
EPOCHS, BATCH, RATE, MARGIN = 100, 256, 0.05, 1.0


def ir2vec(what, kind, source, folder):
    """The lines of `llvm-ir2vec triplets` or `entities` for a C file."""
    ir, mir, out = folder / "a.ll", folder / "a.mir", folder / "out.txt"
    subprocess.run(["clang-22", "-O2", "-w", "-S", "-emit-llvm", source, "-o", ir], check=True)
    subprocess.run(["llc-22", "-O2", "-stop-before=greedy", ir, "-o", mir], check=True)
    mode = {"ir": ["--mode=llvm", ir], "mir": ["--mode=mir", mir]}[kind]
    subprocess.run(["llvm-ir2vec-22", what, *mode, "-o", out], check=True)
    return out.read_text().splitlines()[1:]


def learnt(triplets, entities, size):
    """float32[entities, size], where head + relation is near the tail, and far from a random one.
    triplets: int64[n, 3], heads, tails and relations."""
    random, triplets = np.random.default_rng(0), np.unique(triplets, axis=0)
    vectors = random.standard_normal((entities, size), np.float32)
    relations = random.standard_normal((triplets[:, 2].max() + 1, size), np.float32) / size**0.5
    for _ in range(EPOCHS):
        random.shuffle(triplets)
        for part in np.array_split(triplets, len(triplets) // BATCH + 1):
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            head, tail, relation = part.T
            wrong = random.integers(entities, size=len(part))
            start = vectors[head] + relations[relation]
            near, far = start - vectors[tail], start - vectors[wrong]
            close = (MARGIN + (near**2).sum(axis=1) > (far**2).sum(axis=1))[:, None] * RATE
            for array, rows, by in (
                (vectors, head, far - near),
                (relations, relation, far - near),
                (vectors, tail, near),
                (vectors, wrong, -far),
            ):
                np.add.at(array, rows, close * by)
    return vectors


def section(name, kind, is_opcode, is_type):
    """Where LLVM looks for an entity, and its name there."""
    for prefix, part in (("PhyReg_", "PhysicalRegisters"), ("VirtReg_", "VirtualRegisters")):
        if name.startswith(prefix):
            return part, name.removeprefix(prefix)
    if is_opcode:
        return "Opcodes", name
    return ("CommonOperands" if kind == "mir" else "Types" if is_type else "Arguments"), name


def main(kind, out, *sources):
    with tempfile.TemporaryDirectory() as name:
        folder, triplets = Path(name), []
        entities = [line.split("\t")[0] for line in ir2vec("entities", kind, sources[0], folder)]
        for source in sources:
            triplets += [line.split("\t") for line in ir2vec("triplets", kind, source, folder)]
    vectors = learnt(np.array(triplets, np.int64), len(entities), SIZES[kind])
    opcodes = entities.index("FloatTy" if kind == "ir" else "Immediate")  # the first that is none
    sections = {}
    for i, vector in enumerate(vectors.round(4).tolist()):
        is_type = kind == "ir" and i < entities.index("Function")
        part, key = section(entities[i], kind, i < opcodes, is_type)
        sections.setdefault(part, {})[key] = vector
    Path(out).write_text(json.dumps(sections))


if __name__ == "__main__":
    main(*sys.argv[1:])
