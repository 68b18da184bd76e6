"""What providers say when they are asked for their models: the one thing of doctor that uses the network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from scheduler.errors import AskFailed, ProviderNotReady, ResumedError
from scheduler.findings import Finding, note, ok, wrong
from scheduler.gateway import MODELS_SECONDS, Exchange
from scheduler.inventory import plans_of
from scheduler.job import JobFile
from scheduler.keys import read_key

_ACT: Final = "mend base_url, key or network, and try again"
_PICK: Final = "name one of its models"


def ask_providers(job_file: JobFile, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Ask each provider of a job for its list of models: one GET each, with the key, never repeated.

    Nobody is asked while `live` is false.
    """
    if not job_file.live:
        yield note("online", "live is false, so no provider is asked")
        return
    models: dict[str, set[str]] = {}
    providers = {}
    for plan in plans_of(job_file):
        provider = plan.job.provider
        if not provider.offline:
            providers[provider.name] = provider
            named = plan.job.model or provider.model or environ.get(provider.model_env or "", "").strip()
            models.setdefault(provider.name, set()).update({named} - {""})
    for name, provider in providers.items():
        try:
            key = read_key(provider, environ)
        except ProviderNotReady as error:
            yield wrong("online", f"provider {name} is not asked: {error.problem}", _ACT)
            continue
        yield note("online", f"asking {provider.base_url}/models of provider {name}, at most {MODELS_SECONDS:g} s")
        try:
            with Exchange(provider, key, environ) as exchange:
                known = set(exchange.list_models())
        except ResumedError as error:
            reason = error.reason if isinstance(error, AskFailed) else str(error)
            yield wrong("online", f"provider {name}: {reason}", _ACT)
            continue
        for model in sorted(models[name]):
            if model in known:
                yield ok("online", f"provider {name} has {model}")
            else:
                yield wrong(
                    "online", f"provider {name} lists {len(known)} models, and {model} is not among them", _PICK
                )
