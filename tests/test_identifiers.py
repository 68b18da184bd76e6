"""What is an identifier, and what is not."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.identifiers import find_identifiers, unfounded

FOUND = [
    ("Order ORD-48213 is late.", ["ORD-48213"]),
    ("See docs/shipping.md, then /var/log/app.log.", ["docs/shipping.md", "/var/log/app.log"]),
    ("Read README.md and ~/notes/a_b.", ["README.md", "~/notes/a_b"]),
    ("On 2026-03-12, at 2026-03-12T06:00:00Z, by 06:30", ["2026-03-12", "2026-03-12T06:00:00Z", "06:30"]),
    ("On 12 March 2026 or March 13, 2026 or 3.4.2026", ["12 March 2026", "March 13, 2026", "3.4.2026"]),
    ("It takes 3 days, 30 ms and 5%.", ["3 days", "30 ms", "5%"]),
    ("It costs 1,299.50 EUR, $1300, 12€ or 9.90 euros.", ["1,299.50 EUR", "$1300", "12€", "9.90 euros"]),
    ("10 kg, 2 MB, 10GB, 20 °C", ["10 kg", "2 MB", "10GB", "20 °C"]),
    ("v1.2.3 on 192.168.0.1, GPT-4o", ["v1.2.3", "192.168.0.1", "GPT-4o"]),
    ("commit 9fceb02 closes #123", ["9fceb02", "#123"]),
    ("id 123e4567-e89b-12d3-a456-426614174000", ["123e4567-e89b-12d3-a456-426614174000"]),
    ("mail a.b@example.com, https://h.example/v1?q=1.", ["a.b@example.com", "https://h.example/v1?q=1"]),
    ("call read_file with MAX_TOKENS", ["read_file", "MAX_TOKENS"]),
    ("number 4711 and phone 030-1234-5678", ["4711", "030-1234-5678"]),
    ("3 days, then 3 days, 3  days", ["3 days"]),
    ("Standard shipping takes three to five working days. It isn't free, e.g. and/or i.e. I/O.", []),
    ("1, 2 and 12 of them. Yes!", []),
    ("All 3 marching, 2 mayors, 5 timed", []),
    ("", []),
]


@pytest.mark.parametrize(("text", "names"), FOUND)
def test_what_names_one_certain_thing_is_found_once_in_its_order(text: str, names: list[str]) -> None:
    assert find_identifiers(text) == names


UNITS = (
    "% ‰ ° °C °F € $ £ ¥ EUR USD GBP CHF JPY kB MB GB TB KiB MiB GiB TiB byte bytes bit/s kbit/s Mbit/s Gbit/s "
    "Tbit/s Hz kHz MHz GHz W kW MW Wh kWh MWh V mV kV A mA K m nm µm mm cm km g mg kg t l ml cl kcal px dpi "
    "s ms µs ns min h d second seconds minute minutes hour hours day days week weeks month months year years token "
    "tokens request requests item items piece pieces euro euros dollar dollars cent cents pound pounds franc "
    "francs"
)
MONTHS = (
    "January February March April May June July August September October November December "
    "Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec"
)
ENDINGS = (
    "md txt py json yaml yml toml ini cfg conf log csv tsv htm html xml pdf doc docx xls xlsx png jpg jpeg svg gif zip "
    "gz tar sh js ts c h cpp rs go java rb sql db sqlite sqlite3 service rst tex"
)


@pytest.mark.parametrize(
    "names",
    [
        [f"7 {unit}" for unit in UNITS.split()],
        [f"7{unit}" for unit in UNITS.split()],
        [f"7 {month}" for month in MONTHS.split()],
        [f"{month} 7" for month in MONTHS.split()],
        [f"{month} 7, 2026" for month in MONTHS.split()],
        [f"notes.{ending}" for ending in ENDINGS.split()],
        [
            "1st May",
            "2nd of May",
            "3rd May 2026",
            "4th May, 2026",
            "5. May",
            "May 1st",
            "May 2nd",
            "May 3rd",
            "May 4th",
        ],
    ],
    ids=["units", "units without a blank", "days", "months first", "years", "endings", "ordinals"],
)
def test_every_unit_month_and_ending_is_known(names: list[str]) -> None:
    assert find_identifiers(" ; ".join(names)) == names


@pytest.mark.parametrize(
    ("said", "read", "missing"),
    [
        ("ORD-48213", "order ord-48213 came", []),
        ("ORD-4821", "order ORD-48213 came", ["ORD-4821"]),
        ("30 ms", "it took 30ms", []),
        ("30ms", "it took 30\u00a0ms", []),
        ("30 ms", "it took 130 ms", ["30 ms"]),
        ("$1300", "about $ 1300", []),
        ("12 March 2026", "on 12\nMarch 2026", []),
        ("13 March 2026", "on 12 March 2026", ["13 March 2026"]),
        ("docs/a.md", "read docs/a.md:3", []),
        ("docs/a.md", "read docs/b.md", ["docs/a.md"]),
        ("900 EUR", "1,900 EUR", ["900 EUR"]),
        ("90 EUR", "9.90 EUR", ["90 EUR"]),
        ("50 %", "99.50 %", ["50 %"]),
        ("$99", "$99.50", ["$99"]),
        ("AB-12", "AB-12-7", ["AB-12"]),
        ("v1.2", "v1.2.3", ["v1.2"]),
        ("1000 EUR", "1,000 EUR", []),
        ("1,500,000", "about 1500000 of them", []),
        ("EUR 9", "EUR 9.50", ["EUR 9"]),
        ("9 EUR", "a price of 9 EUR.", []),
        ("5 days", "a 5-day week", []),
        ("1 week", "2 weeks", ["1 week"]),
        ("4 weeks", "a 4 week tour", []),
        ("5 days", "3-5 days", []),
        ("2024", "on 2024-03-05", []),
        ("2026-03-02", "at 2026-03-02T09:00:00Z", []),
        ("09:30", "from 9:30 on", []),
        ("https://h.example/a/", "https://h.example/a", []),
        ("./docs/a.md", "docs/a.md: lines 1-2", []),
        ("ORD-5", "https://h.example/ORD-5/x", []),
        ("(ORD-5), **ORD-6**; `ORD-7`", "ORD-5.\nORD-6, ORD-7", []),
        *((same, same, []) for same in ("3.14159", "1.0834", "52.5200, 13.4050", "0.0001", "9:30am", "$1.5M")),
        *((same, same, []) for same in ("2026\u5e74", "5000\u5143", "gr\u00f6\u00dfe_12", "1:1000", "12:30Uhr")),
        ("99.9 %", "99.9 percent", []),
        ("5000", "\u5728 5000\u5143", []),
        ("ORD-5, 2026-03-02", "12,ORD-5,2026-03-02,9.90 EUR", []),
        ("9.90 EUR", "12,9.90 EUR,x", []),
        ("no names here", "", []),
    ],
)
def test_an_identifier_counts_as_read_only_as_a_whole(said: str, read: str, missing: list[str]) -> None:
    assert unfounded(said, ["other text", read]) == missing


def test_of_very_many_identifiers_the_first_two_thousand_are_looked_up() -> None:
    assert unfounded(" ".join(f"ORD-{n}" for n in range(2_500)), []) == [f"ORD-{n}" for n in range(2_000)]


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "1",
        "a/",
        "1.",
        "_",
        "a_",
        "a-",
        ".",
        "x@",
        "a.",
        "1 ",
        "%",
        "a1.",
        "1:",
        "../",
        "~/",
        "http://",
        "a@a.",
        "é",
    ],
)
def test_no_text_takes_long(piece: str) -> None:
    text = piece * (100_000 // len(piece))
    start = time.process_time()
    find_identifiers(text)
    assert time.process_time() - start < 10  # some tenths of a second; a quadratic pattern takes minutes


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.text(max_size=200), st.text(max_size=50))
def test_every_text_grounds_itself(text: str, other: str) -> None:
    assert unfounded(text, [f"{other}\n{text}"]) == []
