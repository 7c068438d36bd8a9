"""The host in pure Python: see tests/pure_python."""

import sys

from pure_python import api
from stage import Stage

IMPORT = "import sys; sys.path[:0] = {path!r}; from pure_python.api import Host"


class PureStage(Stage):
    make_host = api.Host

    def python(self, code, *args):
        here = IMPORT.format(path=sys.path)
        return super().python(code.replace("from shmbridge import Host", here), *args)
