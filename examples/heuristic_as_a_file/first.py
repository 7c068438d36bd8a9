"""Inline a call? A heuristic for size, edited twice by hand."""


def advise(request):
    cost_estimate, callee_users = request["cost_estimate"], request["callee_users"]
    return ((cost_estimate < 20) | (callee_users < 2)).astype(int)
