"""python tests/conformance [pytest's options]: the suite, and its table."""

import sys
from pathlib import Path

import pytest

sys.exit(pytest.main(["-q", str(Path(__file__).parent), *sys.argv[1:]]))
