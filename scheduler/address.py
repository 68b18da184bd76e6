"""Which addresses a provider's key, or a notification, may be sent to. Pure."""

from __future__ import annotations

import ipaddress
import re
import socket
from urllib.parse import SplitResult, urlsplit


def check_base_url(base_url: str, allow_http: bool) -> None:
    """Check that requests with a key may go to this address.

    http:// is for this machine alone, unless `allow_http`; link-local addresses (RFC 3927, RFC 4291) serve a cloud's
    own credentials. Raises ValueError with one sentence, which never repeats the address: it may hold a password.
    """
    parts = _check_url(base_url)
    if "@" in parts.netloc:
        raise ValueError("a URL holds no user name or password; name the key's place with key: {env: NAME}")
    if "?" in base_url or "#" in base_url:
        raise ValueError("a URL ends with its path; take away what starts with ? or #")
    local = _check_host(parts)
    if parts.scheme == "http" and not (local or allow_http):
        raise ValueError("http:// would send the key unprotected; use https://, or allow_http: true in a safe network")


def check_notify_url(url: str, *, from_environment: bool = False) -> None:
    """Check that notifications may go to this address, which often holds a token in its path or query.

    http:// is for this machine alone, unless the address comes from the environment, and link-local addresses are
    refused. Raises ValueError with one sentence, which never repeats the address.
    """
    parts = _check_url(url)
    if "@" in parts.netloc:
        raise ValueError("a URL holds no user name or password")
    local = _check_host(parts)
    if parts.scheme == "http" and not (local or from_environment):
        raise ValueError("http:// would send it unprotected; use https://, or take the address from a variable")


def _check_url(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        parts.hostname, parts.port  # noqa: B018  # looked at, because each may raise
    except ValueError:
        raise ValueError("this is not a URL") from None
    if re.search(r"[\s\x00-\x1f\x7f\\]", url):
        raise ValueError("a URL holds no blanks, control characters or backslashes")
    if parts.scheme not in ("http", "https"):
        raise ValueError("a URL starts with https://, such as https://example.com/v1")
    return parts


def _check_host(parts: SplitResult) -> bool:
    """Refuse what is no host for us; tell whether it is this machine."""
    host = parts.hostname or ""
    if not host or parts.port == 0:
        raise ValueError("this URL names no host, or port 0")
    address = _address(host)
    if address is not None and address.is_link_local:
        raise ValueError("link-local addresses are refused: a cloud hands out its own keys there")
    return host == "localhost" or (address is not None and address.is_loopback)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address that a host is written as, in each form that a resolver reads (127.1 and 0x7f000001 too)."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:
            return ipaddress.ip_address(socket.inet_aton(host))
        except (OSError, ValueError):
            return None
    return getattr(address, "ipv4_mapped", None) or address
