"""One notification over one channel: what is sent, what hostile receivers can do, what a program of ours inherits."""

from __future__ import annotations

from pathlib import Path

from scheduler.job import Channel, KeySource, Provider
from scheduler.keys import child_environ

KEY = "sk-canary-0123456789"


def test_a_child_inherits_no_variable_that_holds_a_secret(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("file-canary-0123456789\n")
    (tmp_path / "service").write_text("credential-canary-0123456789\n")
    providers = [
        Provider(name="a", base_url="x", key=KeySource(kind="env", name="A_KEY")),
        Provider(name="b", base_url="x", key=KeySource(kind="file", name=str(tmp_path / "key"))),
        Provider(name="c", base_url="x", key=KeySource(kind="credential", name="service")),
        Provider(name="d", base_url="x", headers=(("api-key", KeySource(kind="env", name="HEADER")), ("X-A", "b"))),
        Provider(name="e", base_url="x", key=KeySource(kind="env", name="SHORT")),
        Provider(name="f", base_url="x", key=KeySource(kind="env", name="UNSET")),
    ]
    channels = [
        Channel(kind="webhook", target=KeySource(kind="env", name="HOOK")),
        Channel(kind="argv", target=("true",)),
    ]
    plain = {"PATH": "/bin", "LANG": "C.UTF-8", "PRESHORT": "ollama-models"}
    environ = {
        "A_KEY": KEY,
        "SAME_ELSEWHERE": f"Bearer {KEY}",
        "FROM_FILE": "file-canary-0123456789",
        "FROM_SERVICE": "credential-canary-0123456789",
        "HEADER": "Bearer header-canary-0123456789",
        "HOOK": "https://hooks.example.com/canary",
        "SHORT": "ollama",
        "SHORT_AGAIN": " ollama ",
        "CREDENTIALS_DIRECTORY": str(tmp_path),
    }
    assert child_environ(providers, channels, environ | plain) == plain
