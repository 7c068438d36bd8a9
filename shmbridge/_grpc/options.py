"""The options of a grpc:// URL; docs/remote.md describes them."""

from __future__ import annotations

import os
import re
import ssl
from typing import Any, NamedTuple

from shmbridge.errors import InvalidError

DOUBT = 5.0  # seconds without a word after which the other side is asked whether it lives


class Options(NamedTuple):
    """The options of a URL; docs/remote.md describes them."""

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


def split(url: str, role: str) -> tuple[str, Options]:
    """The address and the options of a host's URL."""
    where, _, query = url.partition("://")[2].partition("?")
    return where, options_of(
        dict(part.partition("=")[::2] for part in query.split("&") if part), role
    )


def client_query(url: str) -> str | None:
    """The options that a compiler on this machine adds to the URL of such a host; None: they depend
    on files that only the user knows."""
    where, options = split(url, "server")
    if not options.cert:
        return ""
    names = None if options.ca else _names(options.cert, options.key)
    if names is None or "&" in options.cert:
        return None
    host = where.rpartition(":")[0].strip("[]")
    if host in names:
        return f"?ca={os.path.abspath(options.cert)}"
    known = [name for name in names if "*" not in name]
    return f"?ca={os.path.abspath(options.cert)}&name={known[0]}" if known else None


def _names(cert: str, key: str) -> list[str] | None:
    """The names in a certificate, if a client that trusts that file accepts it."""
    server, client = (
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
        ssl.create_default_context(cafile=cert),
    )
    server.load_cert_chain(cert, key)
    client.check_hostname = False
    client.verify_flags &= ~ssl.VERIFY_X509_PARTIAL_CHAIN  # which gRPC does not do
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = client.wrap_bio(back, there), server.wrap_bio(there, back, server_side=True)
    for end in ends * 3:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLError:
            return None
    found: Any = ends[0].getpeercert()
    return [name for kind, name in found.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]


def is_address(text: str) -> bool:
    """Whether it is HOST:PORT or unix:/PATH. gRPC itself would add port 443, and truncate a large
    number."""
    found = re.fullmatch(r"unix:.+|.+:([0-9]{1,5})", text)
    return found is not None and int(found[1] or 0) < 1 << 16
