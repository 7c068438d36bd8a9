"""grpc:// with TLS, and the lines for compilers that `shmbridge serve` prints."""

import re
import shlex
import subprocess
import sys

import numpy as np
import pytest
from support.grpc import ANY
from support.processes import free_port

from shmbridge import NoHostError, connect

# ---- TLS ----


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """A folder with ca.pem and what it signed: server.pem, client.pem, expired.pem, and of another
    host elsewhere.pem; with other.pem, which nobody signed, and foreign.pem, which other did."""
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*words):
        try:
            subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
        except FileNotFoundError:
            pytest.skip("needs openssl")

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    for name in ("ca", "other"):
        openssl(
            "req",
            "-x509",
            *key,
            "-subj",
            f"/CN={name}",
            "-keyout",
            f"{name}.key",
            "-out",
            f"{name}.pem",
        )
    (folder / "here").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
    (folder / "elsewhere").write_text("subjectAltName=DNS:elsewhere.example")
    for name, by, days, names in [
        ("server", "ca", 2, "here"),
        ("client", "ca", 2, "here"),
        ("expired", "ca", -1, "here"),
        ("elsewhere", "ca", 2, "elsewhere"),
        ("foreign", "other", 2, "here"),
    ]:
        asks = ["-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr"]
        openssl("req", *key, *asks)
        signed = ["-CA", f"{by}.pem", "-CAkey", f"{by}.key", "-CAcreateserial"]
        signed += ["-days", f"{days}", "-extfile", names]
        openssl("x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.pem")
    return folder


def pair(folder, name):
    return f"cert={folder}/{name}.pem&key={folder}/{name}.key"


def test_tls_lets_in_who_trusts_the_server(serving, certificates):
    host = serving(lambda request: 1, f"{ANY}?{pair(certificates, 'server')}")
    with connect(f"{host.url}?ca={certificates}/ca.pem") as runner:
        assert runner.evaluate({"x": 1}) == 1
    for options in (f"ca={certificates}/other.pem", "tls=1"):
        with pytest.raises(NoHostError, match="(?i)certificate|handshake"):
            connect(f"{host.url}?{options}", connect_timeout=1)
    with pytest.raises(NoHostError):
        connect(host.url, connect_timeout=0.5)


def test_mutual_tls_lets_in_whom_the_server_trusts(serving, certificates):
    host = serving(
        lambda request: 1, f"{ANY}?{pair(certificates, 'server')}&ca={certificates}/ca.pem"
    )
    trusting = f"{host.url}?ca={certificates}/ca.pem"
    with connect(f"{trusting}&{pair(certificates, 'client')}") as runner:
        assert runner.evaluate({"x": 1}) == 1
    for own in ("", f"&{pair(certificates, 'other')}"):
        with pytest.raises(NoHostError):
            connect(trusting + own, connect_timeout=0.5)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [("expired", "has expired"), ("elsewhere", "Hostname"), ("foreign", "local issuer")],
)
def test_a_certificate_that_is_wrong_lets_nobody_in(serving, certificates, wrong, why):
    host = serving(lambda request: 1, f"{ANY}?{pair(certificates, wrong)}")
    with pytest.raises(NoHostError, match=why):
        connect(f"{host.url}?ca={certificates}/ca.pem", connect_timeout=1)
    if wrong == "elsewhere":  # a client's name is not checked
        return
    host = serving(
        lambda request: 1, f"{ANY}?{pair(certificates, 'server')}&ca={certificates}/ca.pem"
    )
    with pytest.raises(NoHostError):
        connect(
            f"{host.url}?ca={certificates}/ca.pem&{pair(certificates, wrong)}", connect_timeout=0.5
        )


def test_training_takes_tls_as_well(serving, certificates):
    address, both = f"grpc://localhost:{free_port()}", f"ca={certificates}/ca.pem"
    serving(lambda request: 1, f"{address}?role=client&{both}&{pair(certificates, 'client')}")
    with connect(
        f"{address}?role=server&{both}&{pair(certificates, 'server')}", connect_timeout=30
    ) as runner:
        assert runner.evaluate({"x": 1}) == 1


# ---- What `shmbridge serve` prints ----


@pytest.mark.parametrize("tls", [False, True])
def test_the_line_that_serve_prints_works_as_typed(tls, certificates, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    url = f"grpc://127.0.0.1:{free_port()}"
    served = f"{url}?{pair(certificates, 'server')}" if tls else url
    command = [sys.executable, "-m", "shmbridge.cli"]
    model = ["--python", "shmbridge.demo.model:advise"]
    words = [*command, "serve", served, *model, "--background"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    try:
        said = done.stdout
        found = re.search(r'connect\("(.*?)"\)', said)[1]
        assert "shmbridge embed" in said and f"SHMBRIDGE_URL={shlex.quote(found)}" in said
        with connect(f"{found}?ca={certificates}/ca.pem" if tls else found) as runner:
            runner.evaluate({"features": np.ones(16, np.float32)})
    finally:
        subprocess.run([*command, "stop", url], check=True, capture_output=True)
