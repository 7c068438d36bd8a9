"""Becomes the second module in the file of `_native`: the calls that every message takes, in C."""

import sys
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from typing import cast

from shmbridge import _native

_spec = cast(ModuleSpec, spec_from_file_location(__name__, _native.__file__))
sys.modules[__name__] = module_from_spec(_spec)
_spec.loader.exec_module(sys.modules[__name__])
