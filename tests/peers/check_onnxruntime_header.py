"""Compares cdef/src/model/onnxruntime.h with ONNX Runtime's own header: positions in the function
table, numbers of parameters, element types. python check_onnxruntime_header.py
onnxruntime_c_api.h"""

import re
import sys
from pathlib import Path

OURS = Path(__file__).parents[2] / "cdef" / "src" / "model" / "onnxruntime.h"


def plain(path):
    """A header without comments."""
    text = Path(path).read_text(errors="replace")
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def parameters(text):
    """How many parameters a function's list in the text has, which begins behind its "("."""
    depth, count = 1, 1
    for at, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if not depth:
            return 0 if text[:at].strip() in ("", "void") else count
        count += character == "," and depth == 1
    raise ValueError(f"no end: {text[:60]!r}")


def theirs(header):
    """The functions of struct OrtApi in their order: [(name, number of parameters)]."""
    text = plain(header)
    begin = text.index("struct OrtApi {")
    body = text[begin : text.index("\n};", begin)]
    found = []
    for match in re.finditer(
        r"ORT_API2_STATUS\(\s*(\w+)(,?)|ORT_CLASS_RELEASE\((\w+)\)|\*\s*(\w+)\s*\)\s*\(", body
    ):
        status, more, release, plain_name = match.groups()
        if status:
            found.append((status, parameters(body[match.end() :]) if more else 0))
        elif release:
            found.append((f"Release{release}", 1))
        else:
            found.append((plain_name, parameters(body[match.end() :])))
    return found


def elements(header):
    """The numbers of element types, by their names: {"FLOAT": 1, ...}."""
    body = re.search(r"enum ONNXTensorElementDataType \{(.*?)\}", plain(header), re.DOTALL)[1]
    names = re.findall(r"ONNX_TENSOR_ELEMENT_DATA_TYPE_(\w+)", body)
    return {name: number for number, name in enumerate(names)}


def ours():
    """[(name, position, number of parameters)], and the numbers of element types."""
    text = plain(OURS).replace("\\\n", "\n")
    table = [
        (match[1], int(match[2]), parameters(text[match.end() :]))
        for match in re.finditer(r"X\((\w+), (\d+), [^(]*?\(", text)
    ]
    return table, {match[1]: int(match[2]) for match in re.finditer(r"\bORT_(\w+) = (\d+)\b", text)}


def differences(header):
    """What does not agree, as lines; and how many functions were compared."""
    official, known = theirs(header), elements(header)
    table, numbers = ours()
    wrong = []
    for name, position, count in table:
        found = official[position] if position < len(official) else ("nothing", 0)
        if found != (name, count):
            wrong.append(
                f"{position}: expected {found[0]} with {found[1]} parameters, found {name} with "
                f"{count}"
            )
    for name, number in numbers.items():
        if name in known and known[name] != number:
            wrong.append(f"element type {name}: expected {known[name]}, found {number}")
    return wrong, len(table)


if __name__ == "__main__":
    lines, compared = differences(sys.argv[1])
    print(*lines, f"{compared} functions compared, {len(lines)} differences", sep="\n")
    sys.exit(bool(lines))
