"""The options of a grpc:// URL; docs/remote.md describes them."""

import re
from typing import Any, NamedTuple

from shmbridge.errors import InvalidError

DOUBT = 5.0  # seconds without a word after which the other side is asked whether it lives


class Options(NamedTuple):
    role: str
    cert: str = ""
    key: str = ""
    ca: str = ""
    tls: str = ""
    name: str = ""
    message_bytes: int = 64 << 20
    keepalive: float = DOUBT
    service: str = ""
    messages: str = ""


def options_of(given: dict[str, str], role: str) -> Options:
    """Checked; role: unless told. Errors: InvalidError."""
    found: dict[str, Any] = {"role": role, **given}
    unknown = found.keys() - set(Options._fields)
    if unknown:
        raise InvalidError(
            f"grpc:// has no option {', '.join(sorted(unknown))}: expected "
            f"{', '.join(Options._fields)}"
        )
    if found["role"] not in ("server", "client"):
        raise InvalidError(f"role={found['role']}: expected server or client")
    for name, kind in (("message_bytes", int), ("keepalive", float)):
        try:
            if name in found:
                found[name] = kind(found[name])
        except ValueError:
            raise InvalidError(f"{name}={found[name]}: expected a number") from None
    made = Options(**found)
    if bool(made.cert) != bool(made.key) or (
        made.role == "server" and (made.ca or made.tls) and not made.cert
    ):
        raise InvalidError(
            "TLS needs both cert=FILE and key=FILE, the certificate chain and its key, on the "
            "side that serves"
        )
    if made.message_bytes < 1:
        raise InvalidError(f"message_bytes={made.message_bytes}: expected 1 or more")
    return made


def is_address(text: str) -> bool:
    """Whether it is HOST:PORT or unix:/PATH. gRPC itself would add port 443, and truncate a large
    number."""
    found = re.fullmatch(r"unix:.+|.+:([0-9]{1,5})", text)
    return found is not None and int(found[1] or 0) < 1 << 16
