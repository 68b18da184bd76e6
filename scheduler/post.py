"""One small POST to an address of the user's: through the same door as a provider's, with nothing of a provider."""

from __future__ import annotations

import ssl

import httpx

from scheduler.errors import NotifyFailed
from scheduler.gateway import Call, tls_context
from scheduler.owner import program_version


class Post:
    """A POST that is never repeated nor redirected; `run` in one thread, `cut` from another at the deadline."""

    def __init__(self, url: str, body: bytes, media_type: str) -> None:
        self._url = url
        self._body = body
        self._headers = {"Content-Type": media_type, "User-Agent": f"resumed/{program_version()}"}
        self._call = Call()

    def run(self, seconds: float) -> None:
        """Send it; the body of the reply is not read.

        Raises NotifyFailed, whose reason never shows the address, unless the status is 2xx.
        """
        try:
            status = self._status(seconds)
        except httpx.TimeoutException:
            raise NotifyFailed(reason=f"no reply within {seconds:g} s") from None
        except httpx.ConnectError:
            raise NotifyFailed(reason="no connection") from None
        except httpx.TransportError:
            raise NotifyFailed(reason="no HTTP reply") from None
        except httpx.InvalidURL:
            raise NotifyFailed(reason="this is not a URL") from None
        except OSError:
            raise NotifyFailed(reason="the certificates of the public authorities cannot be read") from None
        if not 200 <= status <= 299:
            followed = ", and a redirect is not followed" if 300 <= status <= 399 else ""
            raise NotifyFailed(reason=f"the answer was {status}{followed}")

    def cut(self) -> None:
        """End it; no byte is sent after this."""
        self._call.end()

    def _status(self, seconds: float) -> int:
        url = httpx.URL(self._url)
        # Plain http needs none of it, so that it gets a context that trusts nobody and costs nothing.
        tls = tls_context() if url.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        with httpx.Client(
            headers=self._headers, timeout=seconds, verify=tls, trust_env=False, follow_redirects=False
        ) as client:
            sending = client.stream("POST", url, content=self._body, extensions={"trace": self._call.trace})
            with sending as response:
                return response.status_code
