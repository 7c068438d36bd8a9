"""A combination whose model is a TFLite file."""

import numpy as np
from file_stage import FileStage
from support.tflite_models import Graph


class TfliteStage(FileStage):
    def made(self, inputs, outputs, endless=False, raises=False):
        graph = Graph()
        taken = {spec.name: graph.tensor(spec.name, spec.dtype.name, spec.shape) for spec in inputs}
        specs = {spec.name: spec for spec in inputs}
        given = {}
        for name, value in outputs.items():
            like, source = (
                (specs[value], taken[value])
                if isinstance(value, str)
                else (value, graph.constant(value))
            )
            given[name] = graph.tensor(name, like.dtype.name, like.shape)
            graph.operator(
                "RESHAPE", [source, graph.constant(np.array(like.shape, np.int32))], [given[name]]
            )
        if endless:
            one, zero = graph.constant(np.array(1)), np.array(0)
            given["advice"] = graph.tensor("advice", "int64", ())
            graph.operator(
                "WHILE", [one], [given["advice"]], condSubgraphIndex=1, bodySubgraphIndex=2
            )
            for operator, result in (("GREATER", "bool"), ("MAXIMUM", "int64")):
                turn = Graph(of=graph)
                before, after = turn.tensor("before", "int64", ()), turn.tensor("after", result, ())
                turn.operator(operator, [before, turn.constant(zero)], [after])
                turn.ends([before], [after])
        if raises:
            given["advice"] = graph.tensor("advice", "int64", (1,))
            index = graph.tensor("index", "int64", (1,))
            graph.operator("ADD", [taken["x"], graph.constant(np.array([100]))], [index])
            graph.operator("GATHER", [graph.constant(np.array([1, 2])), index], [given["advice"]])
        return graph.file(taken, given)
