"""The tables of docs/llvm-features.md, from what stock clangs send:

python docs/llvm_features.py      needs clang-19 and clang-22
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import shmbridge

PAGE = Path(__file__).parent / "llvm-features.md"
VERSIONS = (19, 22)
VALUES = range(40)  # more than a machine has registers, so that some are evicted
SOURCE = "\n".join(
    [
        "static int twice(int x) { return 2 * x; }",
        "int f(volatile int *a) {",
        *(f"int v{i} = a[{i}];" for i in VALUES),
        *(f"a[{i}] = twice(v{i}) * v{len(VALUES) - 1 - i};" for i in VALUES),
        "return v0; }",
    ]
)
MEANINGS = {
    "inlining_decision": {
        "sroa_savings": "cost saved because local aggregates of the caller become scalars",
        "sroa_losses": "such savings that the callee's uses prevent",
        "load_elimination": "loads that could be eliminated; 1 after a store or call forbids it",
        "call_penalty": "penalties for the calls that the callee makes",
        "call_argument_setup": "arguments of calls through unknown pointers",
        "load_relative_intrinsic": "calls of `llvm.load.relative`",
        "lowered_call_arg_setup": "arguments of all other calls",
        "indirect_call_penalty": "calls through pointers",
        "jump_table_penalty": "switches that become jump tables",
        "case_cluster_penalty": "switches of up to three clusters of cases",
        "switch_default_dest_penalty": "default cases of jump tables",
        "switch_penalty": "all other switches",
        "unsimplified_common_instructions": "instructions that stay as they are",
        "num_loops": "25 for each outermost loop of the callee, in callers with -Oz",
        "dead_blocks": "number of the callee's blocks that this call never reaches",
        "simplified_instructions": "number of the callee's instructions that this call simplifies",
        "constant_args": "number of arguments that are constants",
        "constant_offset_ptr_args": "number of arguments that are pointers with a constant offset",
        "callsite_cost": "cost of the call itself, which inlining removes: negative",
        "cold_cc_penalty": "penalty for a callee with the cold calling convention",
        "last_call_to_static_bonus": "bonus where this is the last call of a local function",
        "is_multiple_blocks": "1: the callee branches",
        "nested_inlines": "number of calls through pointers that become known and could be inlined",
        "nested_inline_cost_estimate": "the cost of these",
        "threshold": "the heuristic's threshold, after its bonuses",
        "callee_basic_block_count": "basic blocks of the callee",
        "callsite_height": "the caller's level in the module's first call graph; a leaf is 0",
        "node_count": "functions that are defined in the module now",
        "nr_ctant_params": "arguments of the call that are constants",
        "cost_estimate": "the heuristic's estimate of the cost of inlining",
        "edge_count": "calls between defined functions of the module now",
        "caller_users": "uses of the caller in the module, and 1 if other modules can call it",
        "caller_conditionally_executed_blocks": "blocks of the caller after a branch or switch",
        "caller_basic_block_count": "basic blocks of the caller",
        "callee_conditionally_executed_blocks": "blocks of the callee after a branch or switch",
        "callee_users": "uses of the callee in the module, and 1 if other modules can call it",
        "is_callee_avail_external": "1: the callee is also defined in another module",
        "is_caller_avail_external": "1: the caller is also defined in another module",
        "inlining_default": "what LLVM itself would decide, with `--include-default`",
    },
    "index_to_evict": {
        "mask": "1: this place may be chosen",
        "is_free": "1: nothing has to be evicted here",
        "nr_urgent": "number of ranges here that may be evicted only because the new one is urgent",
        "nr_broken_hints": "number of ranges here that would lose the register they prefer",
        "is_hint": "1: the register that the new range prefers",
        "is_local": "number of ranges here that lie in one basic block",
        "nr_rematerializable": "number of ranges here that can be recomputed, not reloaded",
        "nr_defs_and_uses": "number of definitions and uses",
        "weighed_reads_by_max": "reads, by frequency",
        "weighed_writes_by_max": "writes, by frequency",
        "weighed_read_writes_by_max": "instructions that read and write, by frequency",
        "weighed_indvars_by_max": "updates of induction variables, by frequency",
        "hint_weights_by_max": "copies from or to a preferred register, by frequency",
        "start_bb_freq_by_max": "frequency of the block in which the range begins",
        "end_bb_freq_by_max": "frequency of the block in which the range ends",
        "hottest_bb_freq_by_max": "frequency of its most frequent block",
        "liverange_size": "length of the range, in slots of instructions",
        "use_def_density": "spill weights, which LLVM's own heuristic compares",
        "max_stage": "the latest stage of allocation of the ranges here",
        "min_stage": "the earliest",
        "progress": "ranges that still wait for a register, as a part of all at the start",
    },
    "priority": {
        "li_size": "length of the live range, in slots of instructions",
        "stage": "its stage of allocation: new, assigned, split, …",
        "weight": "its spill weight",
    },
}


def advise(request: shmbridge.Request) -> Any:
    """A policy that LLVM accepts."""
    if request["decision"] == "index_to_evict":
        return int(request["mask"][0].nonzero()[0][-1])
    return 1 if request["decision"] == "inlining_decision" else request["li_size"].item()


def sent(version: int) -> dict[str, dict[str, str]]:
    """By decision and name, the dtype and shape of what this version of clang sends."""
    found: dict[str, dict[str, str]] = {}

    def policy(request: shmbridge.Request) -> Any:
        found[request["decision"]] = {
            name: f"{value.dtype}{list(value.shape)}"
            for name, value in request.items()
            if isinstance(value, np.ndarray)
        }
        return advise(request)

    with TemporaryDirectory() as folder:
        url = f"llvm://{folder}/clang?decisions=inline,evict,priority"
        with shmbridge.Host(url) as host, host.start(policy):
            compiler = f"clang-{version}"
            flags = host.flags(compiler, include_default=version >= 22)
            command = [compiler, *flags, "-O2", "-c", "-x", "c", "-", "-o", f"{folder}/out.o"]
            subprocess.run(command, input=SOURCE, text=True, check=True)
    return found


def table(decision: str, by_version: dict[int, dict[str, str]]) -> Iterator[str]:
    """The lines of a decision's table; what some versions lack names those that have it. A dtype and
    shape of all features is in the heading."""
    every = {kind for found in by_version.values() for kind in found.values()}
    if one := len(every) == 1:
        yield from (f"| feature, {every.pop()} | meaning |", "|---|---|")
    else:
        yield from ("| feature | dtype[shape] | meaning |", "|---|---|---|")
    for name in dict.fromkeys(name for found in by_version.values() for name in found):
        kinds = {found[name] for found in by_version.values() if name in found}
        has = [str(version) for version in VERSIONS if name in by_version[version]]
        only = "" if len(has) == len(VERSIONS) else f"LLVM {', '.join(has)}: "
        kind = "" if one else f" {' or '.join(kinds)} |"
        yield f"| `{name}` |{kind} {only}{MEANINGS[decision][name]} |"


def page() -> str:
    """The page with tables of what the installed compilers send."""
    text, found = PAGE.read_text(), {version: sent(version) for version in VERSIONS}
    for decision in MEANINGS:
        begin, end = f"<!-- {decision} -->\n", f"<!-- end of {decision} -->\n"
        lines = table(decision, {version: found[version][decision] for version in VERSIONS})
        before, rest = text.split(begin)
        text = before + begin + "\n" + "\n".join(lines) + "\n" + end + rest.split(end)[1]
    return text


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.exit()
