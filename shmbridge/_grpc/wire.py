"""Shared by both ends of grpc://: credentials, limits, messages and errors."""

import importlib
import os
import threading
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any, NoReturn

from shmbridge import errors
from shmbridge._grpc.options import Options
from shmbridge._native import lib

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what it has to say on stderr comes as exceptions
try:
    import grpc
except ImportError as error:
    raise errors.UnsupportedError(
        f"grpc:// needs the package grpcio: pip install shmbridge[grpc] ({error})"
    ) from error
from shmbridge.serdes.protobuf import Protobuf

RpcError = grpc.RpcError
Cancelled = grpc.FutureCancelledError
SERVICE = "shmbridge.Bridge"
READY = ("shmb-ready", "1")  # initial metadata of a stream whose other side is there
DEADLINE = "shmb-deadline"  # initial metadata: seconds that the host's answers may take
STATUS = "shmb-status"  # metadata: a shmb_status
TEXT = "shmb-text-bin"  # metadata: its text, where the call has no other place for it
CODES = {  # how other people's clients learn of a failure
    lib.SHMB_BUSY: grpc.StatusCode.RESOURCE_EXHAUSTED,
    lib.SHMB_TOO_LARGE: grpc.StatusCode.RESOURCE_EXHAUSTED,
    lib.SHMB_INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    lib.SHMB_MISMATCH: grpc.StatusCode.INVALID_ARGUMENT,
    lib.SHMB_CORRUPT: grpc.StatusCode.INVALID_ARGUMENT,
    lib.SHMB_TIMEOUT: grpc.StatusCode.DEADLINE_EXCEEDED,
    lib.SHMB_CLOSED: grpc.StatusCode.UNAVAILABLE,
    lib.SHMB_HOST_GONE: grpc.StatusCode.UNAVAILABLE,
    lib.SHMB_NO_HOST: grpc.StatusCode.UNAVAILABLE,
}
STATUS_OF = {  # what other people's servers say
    grpc.StatusCode.UNAVAILABLE: lib.SHMB_HOST_GONE,
    grpc.StatusCode.CANCELLED: lib.SHMB_CLOSED,
    grpc.StatusCode.DEADLINE_EXCEEDED: lib.SHMB_TIMEOUT,
    grpc.StatusCode.RESOURCE_EXHAUSTED: lib.SHMB_TOO_LARGE,
    grpc.StatusCode.PERMISSION_DENIED: lib.SHMB_PERMISSION,
    grpc.StatusCode.UNAUTHENTICATED: lib.SHMB_PERMISSION,
    grpc.StatusCode.UNIMPLEMENTED: lib.SHMB_INCOMPATIBLE,
    grpc.StatusCode.INVALID_ARGUMENT: lib.SHMB_INVALID,
    grpc.StatusCode.DATA_LOSS: lib.SHMB_CORRUPT,
    grpc.StatusCode.INTERNAL: lib.SHMB_CORRUPT,
}


class Method:
    """The messages of a method: streams of our own, or calls of the user's method."""

    def __init__(self, own: str, options: Options) -> None:
        self.user, service = bool(options.service), options.service or f"{SERVICE}/{own}"
        self.path, self.codec = f"/{service}", Protobuf()
        if self.user:
            asked, answered = _messages(service, options.messages)
            training = own == "getObservation"  # then what is sent is the advice
            self.codec = Protobuf(*((answered, asked) if training else (asked, answered)))


def _messages(service: str, module: str) -> tuple[Any, Any]:
    """The classes of a user's method: request, response. Errors: InvalidError, UnsupportedError."""
    from google.protobuf import descriptor_pool, message_factory

    name, _, method = service.rpartition("/")
    try:
        importlib.import_module(module)
        found = descriptor_pool.Default().FindServiceByName(name).methods_by_name[method]
    except Exception as error:
        raise errors.InvalidError(
            f"service={service}&messages={module}: expected package.Service/Method, and the "
            "Python module that protoc made of it, "
            f"which can be imported: {type(error).__name__}: {error}"
        ) from error
    if getattr(found, "client_streaming", False) or getattr(found, "server_streaming", False):
        raise errors.UnsupportedError(
            f"{service}: expected a method of one request and one response, found a stream"
        )
    return message_factory.GetMessageClass(found.input_type), message_factory.GetMessageClass(
        found.output_type
    )


# ---- Both sides of a connection ----


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise errors.InvalidError(f"{path}: expected a file in PEM: {error.strerror}") from error


def _arguments(options: Options) -> list[tuple[str, Any]]:
    doubt, user = round(options.keepalive * 1000), bool(options.service)
    alive = [
        ("grpc.keepalive_time_ms", doubt),
        ("grpc.keepalive_timeout_ms", doubt),
        ("grpc.http2.ping_timeout_ms", doubt),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.max_ping_strikes", 0),
    ]
    return [
        ("grpc.max_receive_message_length", options.message_bytes),
        ("grpc.max_send_message_length", -1),  # it is for the receiver to say
        # Other people's servers end a connection that asks often.
        *(alive if doubt and not user else []),
    ]


def channel(address: str, options: Options) -> Any:
    """A connection that makes itself."""
    arguments = [
        *_arguments(options),
        # Who connects anew does not inherit a dead one's pause.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 2000),  # that is how long one try may take
        ("grpc.max_reconnect_backoff_ms", 2000),
        ("grpc.enable_http_proxy", 0),
        ("grpc.service_config_disable_resolution", 1),
    ]
    if options.name:
        arguments.append(("grpc.ssl_target_name_override", options.name))
    if not (options.ca or options.tls or options.cert):
        return grpc.insecure_channel(address, arguments)
    files = [_read(path) if path else None for path in (options.ca, options.key, options.cert)]
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(*files), arguments)


class _Threads(Executor):
    """One thread for each running call. Threads of a ThreadPoolExecutor would keep a program from
    ending while a stream is open."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Any] = SimpleQueue()
        self._idle = threading.Semaphore(0)

    def submit(self, function: Any, /, *args: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._work.put((future, function, args, named))
        if not self._idle.acquire(blocking=False):
            threading.Thread(target=self._run, daemon=True).start()
        return future

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            future, function, args, named = work
            try:
                future.set_result(function(*args, **named))
            except BaseException as error:
                future.set_exception(error)
            del work, future, function, args, named  # they would live until the next call
            self._idle.release()
        self._work.put(None)  # for the next thread

    def shutdown(self, wait: bool = True, **_: Any) -> None:
        """Threads end once they have nothing to do."""
        self._work.put(None)


class Server:
    """A gRPC server of one method, on a port of its own.

    behavior: as gRPC has it: (requests, context) yields replies for our streams, (request, context)
    returns the reply for a user's method; in bytes. Errors: InUseError, InvalidError."""

    def __init__(self, address: str, options: Options, method: Method, behavior: Any) -> None:
        make = (
            grpc.unary_unary_rpc_method_handler
            if method.user
            else grpc.stream_stream_rpc_method_handler
        )
        service, _, name = method.path[1:].rpartition("/")
        handler = grpc.method_handlers_generic_handler(service, {name: make(behavior)})
        self._threads = _Threads()
        self._server = grpc.server(
            self._threads, options=[*_arguments(options), ("grpc.so_reuseport", 0)]
        )
        self._server.add_generic_rpc_handlers((handler,))
        self.address = address
        if address.startswith("unix:"):
            _require_free_socket(address[5:])
        try:
            if options.cert:
                pair = [(_read(options.key), _read(options.cert))]
                trusted = _read(options.ca) if options.ca else None
                credentials = grpc.ssl_server_credentials(
                    pair, trusted, require_client_auth=bool(trusted)
                )
                port = self._server.add_secure_port(address, credentials)
            else:
                port = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise _bind_error(address, error) from error
        if not address.startswith("unix:"):
            self.address = f"{address.rpartition(':')[0]}:{port}"
        self._server.start()

    def stop(self) -> None:
        """Lets what is under way say why it ends, for a moment, and ends the rest."""
        self._server.stop(0.5).wait(2)
        self._threads.shutdown()


def _require_free_socket(path: str) -> None:
    """InUseError if another server listens at a socket's path; gRPC would replace its file."""
    import socket

    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        if probe.connect_ex(path) == 0:
            raise errors.InUseError(f"unix:{path}: another server listens there")


def _bind_error(address: str, why: Exception) -> errors.ShmbridgeError:
    """The reason why an address is not available, which gRPC does not report."""
    import errno
    import socket

    if address.startswith("unix:"):
        return errors.InvalidError(
            f"{address}: expected a new file in a folder that may be written to, and certificates "
            "that fit"
        )
    host, _, port = address.rpartition(":")
    try:
        family, kind, _, _, where = socket.getaddrinfo(
            host.strip("[]") or None, port, type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind) as probe:
            probe.bind(where)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return errors.InUseError(
                f"{address}: another server listens there: choose another port, or 0 for a free one"
            )
        return errors.InvalidError(
            f"{address}: expected HOST:PORT of this machine, or unix:/PATH: {error.strerror}"
        )
    return errors.InvalidError(f"{address}: expected certificates that fit: {why}")


# ---- What became of a call ----


def abort(context: Any, error: errors.ShmbridgeError) -> NoReturn:
    """Ends the call with a status, from which `error_of` makes the error again."""
    context.set_trailing_metadata(((STATUS, str(error.status)),))
    context.abort(CODES.get(error.status, grpc.StatusCode.UNKNOWN), errors.shortened(str(error)))
    raise error  # abort has raised


def ready(deadline: float | None) -> list[tuple[str, str]]:
    """The initial metadata of a host's stream."""
    return [READY] if deadline is None else [READY, (DEADLINE, repr(float(deadline)))]


def deadline_in(metadata: Any) -> float | None:
    """What the host says there; None: nothing."""
    try:
        return float(dict(metadata)[DEADLINE])
    except (KeyError, ValueError):
        return None


def status_in(metadata: Any) -> int:
    """The shmb_status of metadata; 0: none."""
    found = dict(metadata or ()).get(STATUS)
    return next((status for status in errors.BY_STATUS if found == f"{status}"), 0)


def error_of(error: Any, address: str, sent: int = 0) -> errors.ShmbridgeError:
    """The exception of an RpcError; sent: bytes of the request."""
    status, code, text = status_in(error.trailing_metadata()), error.code(), error.details() or ""
    if status:
        return errors.BY_STATUS[status](text)
    kind = errors.BY_STATUS[STATUS_OF.get(code, lib.SHMB_MODEL)]
    if kind is errors.TooLargeError and "larger than" not in text:
        kind = errors.BusyError
    if kind is errors.TooLargeError:
        text = (
            f"{text} (the request had {sent} bytes): raise message_bytes= in the URL of the side "
            "that takes the message"
        )
    return kind(f"grpc://{address}: {code.name}: {text}")


def wait_ready(connection: Any, address: str, seconds: float) -> None:
    """Waits until it is connected. Errors: NoHostError."""
    try:
        grpc.channel_ready_future(connection).result(seconds)
    except grpc.FutureTimeoutError:
        raise why_not(connection, address, seconds) from None


def why_not(connection: Any, address: str, seconds: float) -> errors.ShmbridgeError:
    """Nobody has answered in that time: why?"""
    at, within = f"at grpc://{address}", f"within {seconds:.3g} s"
    check = connection.unary_unary("/grpc.health.v1.Health/Check")
    try:
        check(b"", timeout=0.25)
    except grpc.RpcError as error:
        if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
            return errors.NoHostError(f"no answer {at} {within}")
        if error.code() != grpc.StatusCode.UNIMPLEMENTED:  # which is an answer, too
            return errors.NoHostError(f"no server {at} {within}: {error.details()}")
    alive = f"the server {at} is alive, but did not accept this runner {within}"
    return errors.DeadlineError(alive)
