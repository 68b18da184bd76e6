"""What requests cost at most, and what attempts did cost."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from scheduler.cost import Most, Spent, money, most, most_text, spent, spent_text
from scheduler.job import Price, Provider
from scheduler.state import Attempt, Usage, open_attempt

EUR = Price(input=2.0, output=10.0, currency="EUR")
LOCAL = Provider(name="local", base_url="http://127.0.0.1:1/v1", context_tokens=100_000, max_tokens=20_000, price=EUR)


def provider(**changed: Any) -> Provider:
    """The provider with other fields."""
    return dataclasses.replace(LOCAL, **changed)


@pytest.mark.parametrize(
    ("changed", "requests", "expected"),
    [
        # 80,000 tokens at 2 and 20,000 at 10 a million are 0.36.
        ({}, 1, Most(requests=1, tokens=100_000, amount=0.36, currency="EUR")),
        ({}, 3, Most(requests=3, tokens=300_000, amount=1.08, currency="EUR")),
        ({"max_tokens": None}, 1, Most(requests=1, tokens=100_000, amount=1.0, currency="EUR")),
        (
            {"max_tokens": None, "max_completion_tokens": 50_000},
            1,
            Most(requests=1, tokens=100_000, amount=0.6, currency="EUR"),
        ),
        ({"price": None}, 2, Most(requests=2, tokens=200_000, lacks=("price",))),
        ({"context_tokens": None}, 2, Most(requests=2, lacks=("context_tokens",))),
        ({"context_tokens": None, "price": None}, 2, Most(requests=2, lacks=("context_tokens", "price"))),
        ({"price": None}, 0, Most(requests=0, tokens=0, amount=0)),
    ],
)
def test_a_request_and_its_reply_cost_at_most_a_full_window(
    changed: dict[str, Any], requests: int, expected: Most
) -> None:
    found = most(provider(**changed), requests, offline=False)
    assert dataclasses.replace(found, amount=None) == dataclasses.replace(expected, amount=None)
    assert found.amount == pytest.approx(expected.amount)


def test_what_is_answered_offline_costs_nothing() -> None:
    found = most(LOCAL, 4, offline=True)
    assert (found.tokens, found.amount) == (0, 0)
    assert most_text([found]) == "4 offline requests at no cost"


def test_totals_are_summed_by_currency_and_name_what_is_not_known() -> None:
    dollars = provider(price=Price(input=1.0, output=1.0, currency="USD"))
    each = [
        most(LOCAL, 2, offline=False),
        most(LOCAL, 1, offline=False),
        most(dollars, 1, offline=False),
        most(provider(price=None), 1, offline=False),
        most(provider(context_tokens=None, price=None), 3, offline=False),
        most(LOCAL, 4, offline=True),
    ]
    assert most_text(each) == (
        "8 requests, 4 offline requests at no cost, 500000 tokens, 1.08 EUR, 0.1000 USD; "
        "tokens and cost of 3 requests unknown without context_tokens and price; "
        "cost of 1 request unknown without price"
    )
    assert most_text(each[4:5]) == "3 requests; tokens and cost unknown without context_tokens and price"
    assert most_text(each[3:4]) == "1 request, 100000 tokens; cost unknown without price"
    assert most_text([]) == "0 requests"


def attempt(number: int, billed: Any, usage: tuple[int, int] | None = None) -> Attempt:
    """An attempt with these tokens."""
    entry = open_attempt(number, point=None, started="2026-03-02T09:00:00Z")
    entry["billed"] = billed
    if usage:
        entry["usage"] = Usage(prompt_tokens=usage[0], completion_tokens=usage[1], total_tokens=sum(usage))
    return entry


HISTORY = [attempt(1, "yes", (1000, 200)), attempt(2, "no"), attempt(3, "maybe"), attempt(4, "yes", (2000, 0))]


def test_what_was_spent_is_what_the_provider_told_and_the_rest_is_unknown() -> None:
    found = spent(HISTORY, EUR)
    assert (found.input, found.output, found.unknown, found.currency) == (3000, 200, 1, "EUR")
    assert found.amount == pytest.approx(0.008)
    assert spent_text(found) == "3000 tokens in, 200 tokens out; 0.0080 EUR; 1 attempt of unknown cost"
    assert spent(HISTORY, None) == Spent(input=3000, output=200, unknown=1)
    assert spent_text(spent(HISTORY[:2], None)) == "1000 tokens in, 200 tokens out; cost unknown without price"
    assert spent_text(spent([], EUR)) == "0 tokens in, 0 tokens out; 0.00 EUR"
    assert spent_text(spent([], None)) == "0 tokens in, 0 tokens out"


@pytest.mark.parametrize(
    ("amount", "shown"), [(0.0, "0.00 EUR"), (0.0012, "0.0012 EUR"), (1.0, "1.00 EUR"), (1234.5, "1234.50 EUR")]
)
def test_small_amounts_have_four_decimals(amount: float, shown: str) -> None:
    assert money(amount, "EUR") == shown
