"""What requests cost: their tokens, and the money by the price of a million of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from scheduler.job import Price, Provider
from scheduler.state import Attempt

MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Most:
    """The most that some requests can take; nothing where they are `offline`.

    What is not known is None, and `lacks` names the keys of the provider's entry that would tell.
    """

    requests: int
    offline: bool = False
    tokens: int | None = None
    amount: float | None = None
    currency: str = ""
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What some attempts took: the tokens that the provider told, and of how many attempts it told none.

    An attempt that was not billed took nothing. `amount` is that of the known tokens, None without a price.
    """

    input: int
    output: int
    unknown: int
    amount: float | None = None
    currency: str = ""


def most(provider: Provider, requests: int, *, offline: bool) -> Most:
    """Return the most tokens and money that so many requests can take.

    A request and its reply fit into `context_tokens` together; the reply has at most `max_tokens` of them, where set.
    """
    if offline or not requests:
        return Most(requests=requests, offline=offline, tokens=0, amount=0.0)
    window, price = provider.context_tokens, provider.price
    tokens = None if window is None else requests * window
    if window is None or price is None:
        lacks = [key for key, value in (("context_tokens", window), ("price", price)) if value is None]
        return Most(requests=requests, tokens=tokens, lacks=tuple(lacks))
    longest = provider.max_completion_tokens or provider.max_tokens
    if longest is None:
        each = window * max(price.input, price.output)
    else:
        each = max(window - longest, 0) * price.input + longest * price.output
    amount = requests * each / MILLION
    return Most(requests=requests, tokens=tokens, amount=amount, currency=price.currency)


def most_text(each: Sequence[Most]) -> str:
    """Say the most that these take together, money summed by currency, and what is not known of them."""
    asked = [one for one in each if not one.offline]
    requests, free = sum(one.requests for one in asked), sum(one.requests for one in each if one.offline)
    parts = [_count(requests, "request")] if requests or not free else []
    parts += [f"{_count(free, 'offline request')} at no cost"] if free else []
    if not requests:
        return " and ".join(parts)
    if tokens := sum(one.tokens or 0 for one in asked):
        parts.append(_count(tokens, "token"))
    for currency in sorted({one.currency for one in asked if one.amount is not None and one.currency}):
        parts.append(money(sum(one.amount or 0.0 for one in asked if one.currency == currency), currency))
    return "; ".join([", ".join(parts), *_unknown(asked, requests)])


def _unknown(asked: Sequence[Most], requests: int) -> Iterator[str]:
    """Say what is not known, and of how many of the requests where it is not all of them."""
    for lacks in sorted({one.lacks for one in asked if one.lacks}):
        number = sum(one.requests for one in asked if one.lacks == lacks)
        what = "tokens and cost" if "context_tokens" in lacks else "cost"
        share = "" if number == requests else f" of {_count(number, 'request')}"
        yield f"{what}{share} unknown without {' and '.join(lacks)}"


def spent(history: Iterable[Attempt], price: Price | None) -> Spent:
    """Return what the attempts of a history took, by this price."""
    asked = [attempt for attempt in history if attempt["billed"] != "no" or attempt["usage"]]
    used = [attempt["usage"] for attempt in asked if attempt["usage"]]
    taken, given = sum(one["prompt_tokens"] for one in used), sum(one["completion_tokens"] for one in used)
    unknown = len(asked) - len(used)
    if price is None:
        return Spent(input=taken, output=given, unknown=unknown)
    amount = (taken * price.input + given * price.output) / MILLION
    return Spent(input=taken, output=given, unknown=unknown, amount=amount, currency=price.currency)


def spent_text(found: Spent) -> str:
    """Say what attempts took: the tokens that are known and their cost, and of how many nothing is known."""
    free = not (found.input or found.output or found.unknown)
    cost = "" if free else "; cost unknown without price"
    cost = cost if found.amount is None else f"; {money(found.amount, found.currency)}"
    unknown = f"; {_count(found.unknown, 'attempt')} of unknown cost" if found.unknown else ""
    return f"{_count(found.input, 'token')} in, {_count(found.output, 'token')} out{cost}{unknown}"


def money(amount: float, currency: str) -> str:
    """Return an amount with two decimals, or four where it is less than one."""
    return f"{amount:.{2 if amount >= 1 or not amount else 4}f} {currency}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
