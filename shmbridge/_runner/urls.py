"""URLs of runners, before the C core opens them."""

import importlib.util
import os
from pathlib import Path

from shmbridge._native import lib
from shmbridge._urls.options import split

# The libraries that the C core loads: the variable that names one, and where a wheel has it.
WHEELS = {
    "onnx": ("SHMBRIDGE_ONNXRUNTIME", "onnxruntime", "capi/libonnxruntime.so*"),
    "tflite": ("SHMBRIDGE_LITERT", "ai_edge_litert", "libLiteRt.so"),
}


def with_options(name: str, **options: str) -> str:
    """The URL of a bridge's name or URL, with these options unless it has them."""
    url, given = split(name if "://" in name else f"shm://{name}")
    words = "&".join(f"{key}={value}" for key, value in {**given, **options, **given}.items())
    return f"{url}?{words}" if words else url


def resolve(url: str) -> str:
    """The URL for `shmb_open`: Python plug-ins that it names, a SerDes or what is behind the
    scheme, are known to the C core when this returns, and what the core loads for a scheme is
    named. Errors: UnsupportedError, and what the plug-in raises."""
    scheme, mark, _ = url.partition("://")
    if not mark:
        return url
    if not lib.shmb_scheme_known(scheme.encode()):
        from shmbridge import runners

        runners.ensure(scheme)
    elif scheme == "pipe" and "serdes=" in url:
        from shmbridge import serdes

        return serdes.resolve(url)
    elif scheme in WHEELS:
        return _with_library(url, *WHEELS[scheme])
    return url


def _with_library(url: str, variable: str, package: str, pattern: str) -> str:
    """The URL that also says where the package, which is not imported, has its library, unless that
    or the environment names one."""
    if "library=" in url or os.environ.get(variable):
        return url
    spec = importlib.util.find_spec(package)
    for place in (spec.submodule_search_locations if spec else None) or []:
        for file in sorted(Path(place).glob(pattern)):
            return f"{url}{'&' if '?' in url else '?'}library={file}"
    return url
