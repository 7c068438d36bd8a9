"""A bridge lies in any directory of its user: ?dir=, SHMBRIDGE_DIR, and $TMPDIR where /dev/shm has
no room."""

import contextlib
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pure_python import api
from support.processes import printed, run_with_shm
from support.stock import SHMBRIDGE

from shmbridge import Host, InvalidError, NoHostError, NotPermittedError, connect
from shmbridge._bridge import names


@pytest.fixture
def place(tmp_path):
    folder = tmp_path / "bridges"
    folder.mkdir(0o700)
    yield folder
    assert not list(folder.iterdir())


@pytest.fixture
def said(tmp_path):
    """What a command prints, and how it ends."""

    def run(*words, status=0, **variables):
        environment = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")} | variables
        done = printed([SHMBRIDGE, *words], env=environment)
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    return run


@pytest.mark.parametrize("by", ["url", "variable", "both"])
def test_hosts_and_runners_meet_in_a_directory(
    by, name, place, monkeypatch, c_runner, shm_files, in_thread
):
    url = name if by == "variable" else f"shm://{name}?dir={place}/"
    if by != "url":
        monkeypatch.setenv("SHMBRIDGE_DIR", str(place if by == "variable" else "/elsewhere"))
    with Host(url) as host, host.start(lambda request: 7):
        assert (host.name, host.url) == (f"{place}/{name}", f"shm://{place}/{name}")
        assert [path.name for path in place.iterdir()] == [f"shmb.{name}"] and not shm_files()
        assert place.joinpath(f"shmb.{name}").stat().st_mode & 0o777 == 0o600
        for one in (url, host.url):
            for open_runner in connect, api.connect:
                with open_runner(one) as runner:
                    assert runner.evaluate({"x": 1}) == 7
            c_runner(one).do("close")
        if by == "url":
            with pytest.raises(NoHostError):
                connect(name)
    with api.Host(url) as host:
        in_thread(host.serve, lambda request: 8)
        with connect(url) as runner:
            assert runner.evaluate({"x": 1}) == 8


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o1777])
def test_a_directory_that_others_can_write_to_is_refused_by_both_sides(mode, name, place, said):
    place.chmod(mode)
    for opened in (api.Host, api.connect):
        with pytest.raises(NotPermittedError):
            opened(f"shm://{name}?dir={place}")
    for opened in (Host, connect):
        with pytest.raises(NotPermittedError, match=f"{place} belongs to user .* nobody else"):
            opened(f"shm://{name}?dir={place}")
    assert "mkdir -m 700" in said("ls", status=1, SHMBRIDGE_DIR=str(place))


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a directory away")
def test_the_directory_of_another_user_is_refused(name, place):
    os.chown(place, 65534, 65534)
    with pytest.raises(NotPermittedError, match="belongs to user 65534"):
        Host(f"shm://{name}?dir={place}")


@pytest.mark.parametrize("directory", ["here", "./here", "/a?b", "/" + "x" * 300])
def test_a_directory_that_a_url_cannot_name_is_an_error(directory, name, monkeypatch):
    monkeypatch.setenv("SHMBRIDGE_DIR", directory)
    for opened in (Host, connect):
        with pytest.raises(InvalidError, match="expected an absolute path"):
            opened(name)


def test_a_directory_that_is_missing_is_named_by_a_host_and_no_host_to_a_runner(name, place):
    url = f"shm://{name}?dir={place}/none"
    with pytest.raises(NoHostError, match=f"no host named .{place}/none/{name}"):
        connect(url)
    with pytest.raises(OSError, match=f"in {place}/none: open: No such file.*create it"):
        Host(url)


@given(st.text(), st.text())
def test_any_name_and_directory_is_an_error_or_a_file_in_that_directory(name, directory):
    with contextlib.suppress(InvalidError, NotPermittedError):
        found = names.bridge_name(f"shm://{name}?dir={directory}")
        path = names.segment_path(found)
        assert path.is_absolute() and names.SEGMENT.fullmatch(path.name), (found, path)
        assert names.bridge_name(f"shm://{found}") == found


def test_every_command_finds_a_bridge_in_a_directory(name, place, said, tmp_path):
    (tmp_path / "model.py").write_text("def advise(request): return 1\n")
    served = ["serve", "--background", "--python", f"{tmp_path}/model.py:advise"]
    for url, there in (
        (f"shm://{name}?dir={place}", {}),
        (name, {"SHMBRIDGE_DIR": str(place)}),
        (f"{place}/{name}", {}),
    ):
        assert f"shm://{place}/{name}" in said(*served, "--workers", "2", url, **there)
        assert "runs already" in said(*served, url, status=1, **there)
        assert f"shm://{place}/{name}: host" in said("inspect", url, **there)
        assert "a live host" in said("gc", url, status=1, **there)
        assert f"stopped {place}/{name}" in said("stop", url, **there)
        assert not list(place.iterdir())
    said(*served, name, SHMBRIDGE_DIR=str(place))
    (bridge,) = map(json.loads, said("inspect", "--json", SHMBRIDGE_DIR=str(place)).splitlines())
    assert (bridge["name"], bridge["alive"]) == (f"{place}/{name}", True)
    os.kill(bridge["pid"], 9)
    assert f"removed {place}/shmb.{name}" in said("gc", SHMBRIDGE_DIR=str(place))


PRIVATE = """
    import os, sys
    os.environ["TMPDIR"] = sys.argv[1]
    assert not os.system(sys.argv[2])
    import shmbridge
    from shmbridge._bridge import overview
    url = f"pipe://{sys.argv[1]}/pipe?serdes=json"
    with shmbridge.Host(url) as host, host.start(lambda request: 3):
        print(overview.bridges()[0].name)
        with shmbridge.connect(url) as runner:
            print(runner.evaluate({"x": 1}))
    print(overview.bridges())
    try:
        shmbridge.Host("named")
    except shmbridge.SystemCallError as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("options", "before"),
    [("size=64k", "true"), ("size=1m", "mount -t tmpfs none /dev"), ("size=1m,ro", "true")],
    ids=["full", "missing", "read-only"],
)
def test_a_host_that_names_itself_falls_back_to_tmpdir(options, before, tmp_path):
    done = run_with_shm(options, PRIVATE, tmp_path, before)
    assert done.returncode == 0, done.stderr
    bridge, advice, after, why = done.stdout.splitlines()
    spare = tmp_path / f".shmbridge-{os.geteuid()}"
    assert bridge.startswith(f"{spare}/pipe-") and (advice, after) == ("3", "[]"), done.stderr
    assert spare.stat().st_mode & 0o777 == 0o700 and not list(spare.iterdir())
    assert "cannot create a bridge in /dev/shm" in why and "SHMBRIDGE_DIR" in why
