"""Training logs of a few records."""

import pytest

from shmbridge.logs import LogWriter


@pytest.fixture
def path(tmp_path):
    return tmp_path / "decisions.log"


@pytest.fixture
def write(path):
    """write((features, advice), …, **options): the paths of what is written."""

    def write(*records, **options):
        with LogWriter(path, warn=pytest.fail) as log:
            for features, advice in records:
                log.write(features, advice, **options)
        return log.paths

    return write
