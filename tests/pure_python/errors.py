from enum import IntEnum

Status = IntEnum(
    "Status",
    "INVALID UNSUPPORTED NO_HOST BUSY IN_USE INCOMPATIBLE PERMISSION CORRUPT HOST_GONE RUNNER_GONE"
    " CLOSED TIMEOUT INTERRUPTED TOO_LARGE MISMATCH INEXACT MODEL DROPPED FORKED SYSTEM NO_MEMORY",
)


class Error(Exception):
    def __init__(self, status, text):
        super().__init__(f"{Status(status).name}: {text}")
        self.status, self.text = Status(status), text


class Violation(Exception):
    """The peer sent what step 17 refuses."""


def require(condition, text):
    if not condition:
        raise Violation(text)
