"""The policies of the acceptance tests: one that works, and one for each failure in its table."""

import os
import signal
import sys
import time
from pathlib import Path

INLINER = Path(__file__).absolute().parents[2] / "examples" / "llvm" / "inliner"
sys.path.insert(0, str(INLINER))

from policy import advise as inline  # type: ignore[import-not-found]  # noqa: E402

questions = 0


def healthy(request):
    """Decides differently from LLVM. The plug-in's requests name no decision, since it has only
    one."""
    decision = request.get("decision", "inlining_decision")
    if decision == "inlining_decision":
        return inline(request)
    if decision == "index_to_evict":
        return int(request["mask"][0].nonzero()[0][0])
    return float(max(0, 1_000_000 - int(request["li_size"][0])))


def never(request):
    """Inlines nothing."""
    return 0


def raising(request):
    raise ValueError("no idea")


def hanging(request):
    time.sleep(1000)


def lying(request):
    """Out of range, or of a dtype that no compiler takes."""
    if "decision" not in request:
        return [0.3, 0.7]
    wrong = {"inlining_decision": -1, "index_to_evict": 1 << 40, "priority": float("nan")}
    return wrong[request["decision"]]


def killed(request):
    """Works until its process is killed, at the question that an environment variable names."""
    global questions
    questions += 1
    if questions == int(os.environ["ACCEPTANCE_KILL_AT"]):
        os.kill(os.getpid(), signal.SIGKILL)
    return healthy(request)


def write_model(path, condition):
    """The policy as an ONNX file: export.py's, one that returns two logits, or one that fails when
    it runs."""
    from onnx import TensorProto, helper, save

    sys.path.insert(0, str(INLINER))
    from export import model  # type: ignore[import-not-found]

    made = model()
    graph = made.graph
    last = graph.node[-1]  # Cast of "inline", a bool
    if condition == "lying":
        last.attribute[0].i = TensorProto.FLOAT
        last.output[0] = "logit"
        graph.node.append(helper.make_node("Concat", ["logit", "logit"], ["logits"], axis=0))
        output = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [2])
        graph.output[0].CopyFrom(output)
    elif condition == "raising":  # an index out of range
        last.output[0] = "index"
        graph.initializer.append(helper.make_tensor("far", TensorProto.INT64, [1], [1000]))
        graph.node.append(helper.make_node("Add", ["index", "far"], ["beyond"]))
        graph.node.append(helper.make_node("Gather", ["far", "beyond"], ["inlining_decision"]))
    save(made, str(path))
