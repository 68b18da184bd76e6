"""What one value of jobs.yaml may be: text, a path, a schedule, a duration, the name of a variable."""

from __future__ import annotations

import os
import re
from datetime import datetime
from typing import Annotated, Any, Final

from pydantic import AfterValidator, PlainValidator, StringConstraints, WithJsonSchema

from scheduler import trigger
from scheduler.extras import check_header_name, is_variable
from scheduler.job import DEFAULT_SCHEDULE, KeySource, checkpoint_name_fault
from scheduler.misfits import Refused


def _text(text: str) -> str:
    if not text.strip():
        raise Refused("it is blank")
    return text


def _path(text: str) -> str:
    if re.search(r"[\x00-\x1f\x7f]", text):
        raise Refused("a path holds no control characters")
    os.fsencode(text)  # a ValueError where this machine's file names cannot spell it
    if text.startswith("~"):
        raise Refused("~ is not read as a home folder", "write the whole path")
    return text


def _word(text: str) -> str:
    if "\0" in text:
        raise Refused("no program can be given a NUL")
    os.fsencode(text)  # a ValueError where this machine cannot spell it
    return text


def _argv(words: list[str]) -> list[str]:
    if words and "://" in words[0]:
        raise Refused("expected a program, not an address")  # which may hold a token, and a program's name is shown
    return words


def _checkpoint(text: str) -> str:
    name = text.rpartition("/")[2]
    if name in ("", ".", ".."):
        raise Refused("this names a folder", "name a file in it, such as checkpoints/report.json")
    if fault := checkpoint_name_fault(name):
        raise Refused(fault)
    return text


def _variable(name: str) -> str:
    if not is_variable(name):
        raise Refused("expected the name of an environment variable, never the key itself", "key: {env: LOCAL_KEY}")
    return name


def _zone(name: str) -> str:
    trigger.check_schedule(DEFAULT_SCHEDULE, name)
    return name


def _schedule(text: str) -> str:
    trigger.check_schedule(text, "UTC")
    return text


def _duration(value: Any) -> int:
    if not isinstance(value, str):
        raise Refused("expected a duration", 'write it with its unit, such as "90s", "15m" or "6h"')
    return trigger.parse_duration(value)


def _timeout(value: Any) -> float:
    seconds = float(value if type(value) in (int, float) else _duration(value))
    if not 0 < seconds <= 3600:
        raise Refused("it must be more than 0 and at most 3600 seconds")
    return seconds


def _moment(text: str) -> str:
    """Read a date or a moment; one without an offset is of the job's zone."""
    try:
        year = datetime.fromisoformat(text.strip()).year
    except ValueError:
        year = 0
    if not (1970 < year < 9999 and re.match("[0-9]{4}-[0-9]{2}-[0-9]{2}", text.strip())):  # fromisoformat takes weeks
        raise Refused("expected a date or a moment", 'write "2026-12-24" or "2026-12-24 09:00"')
    return text.strip()


def _temperature(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value <= 2:
        raise Refused("expected a number from 0 to 2")
    return float(value)


def _address(value: Any) -> str | KeySource:
    if isinstance(value, dict):
        if set(value) != {"env"} or not is_variable(value["env"]):
            raise Refused("expected the name of an environment variable", "{env: NOTIFY_URL}")
        return KeySource(kind="env", name=value["env"])
    if not isinstance(value, str):
        raise Refused("expected an address, or the variable that holds it", "{env: NOTIFY_URL}")
    return _text(value).strip()


def _amount(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value <= 1e6:
        raise Refused("expected a price from 0 to 1000000, as a number")
    return float(value)


def _currency(text: str) -> str:
    if not re.fullmatch("[A-Z]{3}", text):
        raise Refused("expected three capital letters, such as EUR")
    return text


_MOMENT: Final = {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}"}
_DURATION: Final = {"type": "string", "pattern": "^[0-9]+[smhd]$"}
_TIMEOUT: Final = {"anyOf": [{"type": "number", "exclusiveMinimum": 0, "maximum": 3600}, _DURATION]}
_AMOUNT: Final = {"type": "number", "minimum": 0, "maximum": 1000000}
_CURRENCY: Final = {"type": "string", "pattern": "^[A-Z]{3}$"}
_TEMPERATURE: Final = {"type": "number", "minimum": 0, "maximum": 2}
_ENV: Final = {"type": "object", "properties": {"env": {"type": "string"}}, "required": ["env"]}
_HEADERS: Final = {
    "type": "object",
    "additionalProperties": {"anyOf": [{"type": "string"}, _ENV | {"additionalProperties": False}]},
}
_ADDRESS: Final = {"anyOf": [{"type": "string", "minLength": 1}, _ENV | {"additionalProperties": False}]}
Id = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
Text = Annotated[str, AfterValidator(_text), WithJsonSchema({"type": "string", "pattern": r"\S"})]
PathText = Annotated[Text, AfterValidator(_path)]
Word = Annotated[Text, AfterValidator(_word)]
Argv = Annotated[list[Word], AfterValidator(_argv)]
Checkpoint = Annotated[PathText, AfterValidator(_checkpoint)]
Variable = Annotated[str, AfterValidator(_variable)]
Credential = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$")]
Zone = Annotated[Text, AfterValidator(_zone)]
Schedule = Annotated[Text, AfterValidator(_schedule)]
Duration = Annotated[int, PlainValidator(_duration), WithJsonSchema(_DURATION)]
Moment = Annotated[Text, AfterValidator(_moment), WithJsonSchema(_MOMENT)]
Timeout = Annotated[float, PlainValidator(_timeout), WithJsonSchema(_TIMEOUT)]
Temperature = Annotated[float, PlainValidator(_temperature), WithJsonSchema(_TEMPERATURE)]
Address = Annotated[str | KeySource, PlainValidator(_address), WithJsonSchema(_ADDRESS)]
Amount = Annotated[float, PlainValidator(_amount), WithJsonSchema(_AMOUNT)]
Currency = Annotated[str, AfterValidator(_currency), WithJsonSchema(_CURRENCY)]
HeaderName = Annotated[str, AfterValidator(check_header_name)]
Headers = Annotated[dict[str, Any], WithJsonSchema(_HEADERS)]
