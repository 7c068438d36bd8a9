"""Policies for the stock compilers: one that differs from LLVM's own, and those that fail."""

import ctypes
import os
import signal
import sys
import time

questions = 0


def logged(*words):
    with open(os.environ["QUESTIONS"], "a") as log:
        print(*words, file=log)


def advise(request):
    """Nothing is inlined, the first range that may be is evicted, the smallest one comes first;
    each question is logged."""
    decision = request["decision"]
    logged(decision, request["context"], request.label, len(request))
    if decision == "inlining_decision":
        return 0
    if decision == "index_to_evict":
        return int(request["mask"][0].nonzero()[0][0])
    return max(0.0, 1e6 - 0.7 * float(request["li_size"][0]))


def inlines(request):
    advise(request)
    return 1


def opposite(request):
    """Inlines what LLVM would not, and only that."""
    return 1 - int(request["inlining_default"][0])


def throws(request):
    raise ValueError("no idea")


def wild(request):
    """What no compiler would survive."""
    return {"inlining_decision": -1, "index_to_evict": 1 << 40, "priority": float("nan")}[
        request["decision"]
    ]


def masked(request):
    """Evicts what may not be evicted, where there is such a range."""
    return int(request["mask"][0].argmin())


def silly(request):
    return "yes"


def _later(act):
    global questions
    questions += 1
    if questions == 20:
        act()
    return float(questions)


def hangs(request):
    return _later(lambda: time.sleep(1000))


def killed(request):
    return _later(lambda: os.kill(os.getpid(), signal.SIGKILL))


def exits(request):
    return _later(lambda: sys.exit(3))


def crashes(request):
    return _later(lambda: ctypes.string_at(0))


def largest(request):
    return float(request["li_size"][0])
