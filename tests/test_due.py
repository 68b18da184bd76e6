"""How a job runs now, when it owes a slice, and what lies ahead of it."""

from __future__ import annotations

import dataclasses
import itertools
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import time_machine
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler import offline, owed, resume_once
from scheduler.checkpoint import hold
from scheduler.due import Span, due_point, idle_since, missed_span, model_of, next_due, owed_point, plan_job
from scheduler.errors import CheckpointUnknown, JobDisabled, ModelChanged, ProviderNotReady, SourceRefused, TaskChanged
from scheduler.forecast import forecast, open_folders
from scheduler.job import Job, JobFile, KeySource, Price, Provider, Source
from scheduler.ledger import Claim, ledger_of
from scheduler.owner import this_process
from scheduler.roster import Facts, note
from scheduler.standing import Admission
from scheduler.state import Sent, new_state
from scheduler.tick import tick

DEMO = Provider(name="demo", base_url=None)
LOCAL = Provider(name="local", base_url="http://127.0.0.1:1/v1", model="m1", timeout=60)


def job(**changed: Any) -> Job:
    """A job that runs at nine each day."""
    fields: dict[str, Any] = {"id": "nightly", "task": "t", "checkpoint": Path("/x/nightly.json"), "provider": DEMO}
    return Job(**(fields | {"schedule": "0 9 * * *"} | changed))


def at(text: str) -> int:
    """UTC seconds of `day hour:minute` in March 2026."""
    return int(datetime.fromisoformat(f"2026-03-{text}:00+00:00").timestamp())


def open_admission() -> Admission:
    """An attempt in flight."""
    return Admission(
        attempt=1, point=None, admitted_at=0, deadline=0, owner=this_process(), outcome=None, ended_at=None
    )


SINCE = at("02 08:00")
NINE = at("02 09:00")


@pytest.mark.parametrize(
    ("now", "since", "facts", "point"),
    [
        ("02 08:59", SINCE, Facts(), None),
        ("02 09:00", SINCE, Facts(), "02 09:00"),
        ("02 23:59", SINCE, Facts(), "02 09:00"),
        ("09 10:00", SINCE, Facts(), "09 09:00"),
        ("02 10:00", NINE, Facts(), "02 09:00"),
        ("02 10:00", NINE + 1, Facts(), None),
        ("02 10:00", at("02 09:30"), Facts(), None),
        ("02 10:00", SINCE, Facts(points=frozenset({NINE})), None),
        ("03 09:00", SINCE, Facts(points=frozenset({NINE})), "03 09:00"),
        ("02 10:00", SINCE, Facts(points=frozenset({NINE - 60})), "02 09:00"),
        ("02 10:00", SINCE, Facts(status="done"), None),
        ("02 10:00", SINCE, Facts(status="exhausted"), None),
        ("02 10:00", SINCE, Facts(open=open_admission()), None),
    ],
)
def test_the_newest_point_since_then_without_a_slice_is_owed(
    now: str, since: int, facts: Facts, point: str | None
) -> None:
    assert due_point(job(), facts, since, at(now)) == (at(point) if point else None)


@pytest.mark.parametrize(
    ("after", "failures", "minutes"),
    [
        ((900, 3600, 21600), 1, 15),
        ((900, 3600, 21600), 2, 60),
        ((900, 3600, 21600), 3, 360),
        ((900, 3600, 21600), 9, 360),
        ((600,), 3, 10),
        ((900, 3600, 21600), 0, 0),
        ((), 3, 0),
    ],
)
def test_after_failures_a_point_must_be_far_enough_from_the_last_end(
    after: tuple[int, ...], failures: int, minutes: int
) -> None:
    every_minute = job(schedule="* * * * *", after_failure=after)
    ended = at("02 10:00")
    facts = Facts(failures=failures, ended_at=ended, points=frozenset({ended}))
    owed = [now for now in range(ended, ended + 8 * 3600, 60) if due_point(every_minute, facts, SINCE, now) is not None]
    assert owed[0] == ended + max(minutes, 1) * 60
    ahead = next_due(every_minute, facts, SINCE, ended)
    assert ahead is not None
    assert ahead.timestamp() == owed[0]


def test_what_is_due_now_is_told_in_the_zone_of_the_job() -> None:
    ahead = next_due(job(timezone="Europe/Madrid"), Facts(), SINCE, at("02 10:00"))
    assert ahead is not None
    assert ahead.isoformat() == "2026-03-02T11:00:00+01:00"


def test_a_delay_uses_up_no_point_and_the_daily_job_still_has_one_the_next_day() -> None:
    facts = Facts(failures=3, ended_at=at("02 09:10"), points=frozenset({NINE}))
    assert due_point(job(), facts, SINCE, at("02 20:00")) is None
    assert due_point(job(), facts, SINCE, at("03 09:00")) == at("03 09:00")


def test_an_end_in_the_future_delays_nothing() -> None:
    facts = Facts(failures=1, ended_at=at("02 09:00") + 70 * 365 * 86400)
    assert due_point(job(), facts, SINCE, at("02 10:00")) == NINE
    ahead = next_due(job(), dataclasses.replace(facts, points=frozenset({NINE})), SINCE, at("02 10:00"))
    assert ahead == datetime(2026, 3, 3, 9, tzinfo=UTC)


def test_the_first_point_of_every_is_at_once() -> None:
    often = job(schedule="every 15m")
    assert due_point(often, Facts(), SINCE, SINCE) == SINCE
    assert due_point(often, Facts(points=frozenset({SINCE})), SINCE, SINCE + 899) is None
    assert due_point(often, Facts(points=frozenset({SINCE})), SINCE, SINCE + 900) == SINCE + 900


def test_points_are_of_the_jobs_own_zone() -> None:
    assert due_point(job(timezone="Asia/Shanghai"), Facts(), SINCE - 86400, at("02 01:00")) == at("02 01:00")


SCHEDULES = st.sampled_from(["every 2s", "every 7m", "*/15 * * * *", "0 9 * * *", "30 2 * * *"])


@settings(derandomize=True, max_examples=100, deadline=None)
@given(
    SCHEDULES,
    st.sampled_from(["UTC", "Europe/Berlin"]),
    st.integers(0, 40 * 86400),
    st.integers(0, 3 * 86400),
    st.integers(0, 4),
    st.lists(st.integers(0, 4000), max_size=3),
)
def test_an_owed_point_is_never_early_never_before_since_and_never_owed_twice(
    schedule: str, zone: str, offset: int, passed: int, failures: int, after: list[int]
) -> None:
    since = at("10 00:00") + offset
    now = since + passed
    one = job(schedule=schedule, timezone=zone, after_failure=tuple(after))
    facts = Facts(failures=failures, ended_at=since)
    point = due_point(one, facts, since, now)
    ahead = next_due(one, facts, since, now)
    assert ahead is not None
    if point is None:
        assert ahead.timestamp() > now
        assert due_point(one, facts, since, ahead.timestamp()) == int(ahead.timestamp())
    else:
        assert since <= point <= now
        assert not (failures and after) or point >= since + after[min(failures, len(after)) - 1]
        assert ahead.timestamp() == now
        assert due_point(one, dataclasses.replace(facts, points=frozenset({point})), since, now) is None


# ---- plans and models


@pytest.mark.parametrize(
    ("provider", "live", "rehearsal", "offline"),
    [(LOCAL, False, True, True), (LOCAL, True, False, False), (DEMO, False, False, True), (DEMO, True, False, True)],
)
def test_a_real_providers_job_is_rehearsed_beside_its_checkpoint_until_live(
    tmp_path: Path, provider: Provider, live: bool, rehearsal: bool, offline: bool
) -> None:
    plan = plan_job(job(provider=provider, checkpoint=tmp_path / "a.json"), live)
    assert (plan.rehearsal, plan.offline) == (rehearsal, offline)
    assert plan.path == (tmp_path / "rehearsal" / "a.json" if rehearsal else tmp_path / "a.json")
    assert plan.sighting.checkpoint == "a.json"


def test_schedule_and_zone_are_both_what_a_job_is_seen_with() -> None:
    texts = {
        plan_job(job(schedule=s, timezone=z), True).sighting.schedule
        for s in ("@daily", "@hourly")
        for z in ("UTC", "Asia/Tokyo")
    }
    assert len(texts) == 4


@pytest.mark.parametrize(
    ("own", "providers", "environ", "model"),
    [
        ("mine", "m1", {"MODEL": "env"}, "mine"),
        (None, "m1", {"MODEL": "env"}, "m1"),
        (None, None, {"MODEL": " env "}, "env"),
        (None, None, {"MODEL": " "}, None),
        (None, None, {}, None),
    ],
)
def test_a_jobs_model_outranks_the_providers_and_that_the_environments(
    own: str | None, providers: str | None, environ: dict[str, str], model: str | None
) -> None:
    provider = dataclasses.replace(LOCAL, model=providers, model_env="MODEL")
    plan = plan_job(job(provider=provider, model=own), live=True)
    if model is None:
        with pytest.raises(ProviderNotReady, match="MODEL"):
            model_of(plan, environ)
    else:
        assert model_of(plan, environ) == model
    assert model_of(plan_job(plan.job, live=False), environ) == "offline-demo"
    assert model_of(plan_job(job(model=own), live=True), environ) == (own or "offline-demo")


# ---- catch_up


def job_file(*jobs: Job, live: bool = False) -> JobFile:
    """A jobs.yaml with these jobs."""
    return JobFile(
        path=Path("/x/jobs.yaml"),
        digest="",
        live=live,
        jobs={one.id: one for one in jobs},
        providers={"demo": DEMO, "local": LOCAL},
        refused={},
    )


SKIPPED = {
    "event": "missed",
    "why": "catch_up is false",
    "first": "2026-03-02T09:00:00Z",
    "last": "2026-03-02T09:00:00Z",
    "count": 1,
}


@pytest.mark.parametrize(
    ("catch_up", "now", "due", "events"),
    [
        (True, "02 12:00", True, []),
        (False, "02 12:00", False, [SKIPPED]),
        (False, "02 09:01", True, []),
        (False, "02 08:30", False, []),
    ],
)
def test_a_missed_point_is_made_up_or_skipped_and_told_once(
    tmp_path: Path, catch_up: bool, now: str, due: bool, events: list[dict[str, Any]]
) -> None:
    one = job(checkpoint=tmp_path / "nightly.json", catch_up=catch_up)
    with ledger_of(tmp_path.resolve()).writing() as tx:
        note(tx, plan_job(one, live=False).sighting, SINCE)
    told: list[dict[str, Any]] = []
    [turn] = owed.select([one], False, at(now), lambda _, event: told.append(event))
    assert isinstance(turn, owed.Turn)
    assert (turn.due, turn.point) == (due, NINE if due else None)
    assert told == events
    owed.select([one], False, at(now), lambda _, event: told.append(event))
    assert told == events
    [turn] = owed.select([one], False, at("03 09:00"), lambda *_: None)
    assert isinstance(turn, owed.Turn)
    assert turn.point == at("03 09:00")


def test_a_clock_that_was_read_a_moment_earlier_gives_no_second_point(tmp_path: Path) -> None:
    one = job(checkpoint=tmp_path / "nightly.json", schedule="every 5m")
    [first] = owed.select([one], False, NINE, lambda *_: None)
    for earlier in (1, 30):
        [turn] = owed.select([one], False, NINE - earlier, lambda *_: None)
        assert isinstance(turn, owed.Turn)
        assert (turn.since, turn.point) == (NINE, None)
    [again] = owed.select([one], False, NINE, lambda *_: None)
    assert isinstance(first, owed.Turn)
    assert isinstance(again, owed.Turn)
    assert first.point == again.point == NINE


# ---- forecast


def test_what_lies_ahead_of_a_new_job(tmp_path: Path) -> None:
    one = job(checkpoint=tmp_path / "none" / "nightly.json", schedule="*/15 * * * *", after_failure=())
    outlook, refusal = forecast(plan_job(one, live=False), job_file(one), {}, None)
    assert refusal is None
    assert (outlook.id, outlook.status, outlook.left, outlook.max_attempts) == ("nightly", "ready", 4, 4)
    moments = [point.timestamp() for point, _ in outlook.points]
    assert len(moments) == 3
    assert [later - earlier for earlier, later in itertools.pairwise(moments)] == [900, 900]
    assert outlook.last is not None
    assert outlook.last.timestamp() > moments[-1]
    assert list(tmp_path.iterdir()) == []


def test_what_no_request_can_follow_is_held_against_nothing(tmp_path: Path) -> None:
    gone = (Source(name="x", path=tmp_path / "x"),)
    one = job(checkpoint=tmp_path / "nightly.json", max_attempts=1, task="another task", read=gone)
    claim = Claim(job="nightly", provider="demo", model="m", task="t", live=False, point=None, deadline=600)
    with hold(one.checkpoint) as held:
        held.look()
        held.admit(new_state("t", "m"), claim, Sent(tokens=1, model="m", window=None, cut=[]), 1, NINE)
        assert forecast(plan_job(one, live=False), job_file(one), {}, None)[1] is None
    rests = job(checkpoint=tmp_path / "rests.json", read=gone, enabled=False)
    assert forecast(plan_job(rests, live=False), job_file(rests), {}, None)[1] is None
    ready = job(checkpoint=tmp_path / "other.json", read=gone)
    assert isinstance(forecast(plan_job(ready, live=False), job_file(ready), {}, None)[1], SourceRefused)


def test_the_points_of_so_many_days(tmp_path: Path) -> None:
    one = job(checkpoint=tmp_path / "nightly.json")
    outlook, _ = forecast(plan_job(one, live=False), job_file(one), {}, 10)
    assert (len(outlook.points), outlook.more) == (10, False)
    often = job(checkpoint=tmp_path / "nightly.json", schedule="* * * * *")
    outlook, _ = forecast(plan_job(often, live=False), job_file(often), {}, 10)
    assert (len(outlook.points), outlook.more) == (1000, True)


def test_a_final_job_has_no_request_left(tmp_path: Path) -> None:
    path = tmp_path / "nightly.json"
    resume_once("t", path, lambda _: {"message": {"content": "fin"}}, "offline-demo")
    outlook, _ = forecast(plan_job(job(checkpoint=path), live=False), job_file(), {}, None)
    assert (outlook.status, outlook.left, outlook.last) == ("done", 0, None)


def test_check_names_what_would_block_the_job(tmp_path: Path) -> None:
    path = tmp_path / "nightly.json"
    ask = {"message": {"content": "part"}, "finish_reason": "length"}
    resume_once("t", path, lambda _: ask, "offline-demo")
    one = job(checkpoint=path)
    outlook, refusal = forecast(plan_job(one, live=False), job_file(one), {}, None)
    assert (outlook.left, refusal) == (3, None)
    for changed, expected in (
        ({"task": "other"}, TaskChanged),
        ({"model": "other"}, ModelChanged),
        ({"read": (Source(name="x", path=tmp_path / "none"),)}, SourceRefused),
    ):
        changed_job = dataclasses.replace(one, **changed)  # type: ignore[arg-type]
        assert isinstance(forecast(plan_job(changed_job, live=False), job_file(), {}, None)[1], expected)
    path.write_bytes(b"{}")
    assert isinstance(forecast(plan_job(one, live=False), job_file(one), {}, None)[1], CheckpointUnknown)


def test_a_missing_key_is_a_note_for_a_rehearsal_and_blocks_once_live(tmp_path: Path) -> None:
    provider = dataclasses.replace(LOCAL, key=KeySource(kind="env", name="LOCAL_KEY"))
    one = job(provider=provider, checkpoint=tmp_path / "nightly.json")
    outlook, refusal = forecast(plan_job(one, live=False), job_file(one), {}, None)
    assert "LOCAL_KEY" in outlook.notes[0]
    assert refusal is None
    outlook, refusal = forecast(plan_job(one, live=True), job_file(one, live=True), {}, None)
    assert isinstance(refusal, ProviderNotReady)
    assert "LOCAL_KEY" in str(refusal)
    outlook, refusal = forecast(plan_job(one, live=True), job_file(one, live=True), {"LOCAL_KEY": "k"}, None)
    assert refusal is None
    assert not any("LOCAL_KEY" in note for note in outlook.notes)


def test_a_folder_that_others_can_read_is_named(tmp_path: Path) -> None:
    one = job(checkpoint=tmp_path / "nightly.json")
    tmp_path.chmod(0o755)
    assert open_folders(job_file(one)) == [tmp_path.resolve()]
    tmp_path.chmod(0o700)
    assert open_folders(job_file(one)) == []


# ---- missed points


def utc_text(point: int) -> str:
    return datetime.fromtimestamp(point, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def span(first: str, last: str, count: int) -> Span:
    """Points in a row, as `day hour:minute` in March 2026."""
    return Span(at(first), at(last), count)


def used(*moments: str) -> frozenset[int]:
    return frozenset(map(at, moments))


@pytest.mark.parametrize(
    ("changed", "facts", "since", "now", "missed"),
    [
        # Nothing is late: the newest point comes within two minutes, and the one before it had its slice.
        ({}, Facts(points=used("02 09:00"), ended_at=at("02 09:01")), "02 08:00", "03 09:01", None),
        ({}, Facts(), "02 08:00", "02 09:02", None),
        # A single point that is late by more.
        ({}, Facts(), "02 08:00", "02 09:03", span("02 09:00", "02 09:00", 1)),
        # Days of rest: the newest point is one of the missed where it is late itself.
        (
            {},
            Facts(points=used("02 09:00"), ended_at=at("02 09:01")),
            "02 08:00",
            "05 10:00",
            span("03 09:00", "05 09:00", 3),
        ),
        (
            {},
            Facts(points=used("02 09:00"), ended_at=at("02 09:01")),
            "02 08:00",
            "05 09:01",
            span("03 09:00", "04 09:00", 2),
        ),
        # From `since` on, and no point before it.
        ({}, Facts(), "03 09:00", "05 10:00", span("03 09:00", "05 09:00", 3)),
        ({}, Facts(), "03 09:01", "05 10:00", span("04 09:00", "05 09:00", 2)),
        # What passed during the job's own attempt is none, nor is what passed in the pause after a failure.
        (
            {"schedule": "*/5 * * * *"},
            Facts(points=used("02 09:00"), ended_at=at("02 09:47")),
            "02 08:00",
            "02 09:50",
            None,
        ),
        (
            {"schedule": "*/5 * * * *"},
            Facts(points=used("02 09:00"), ended_at=at("02 09:01"), failures=2),
            "02 08:00",
            "02 10:05",
            None,
        ),
        (
            {"schedule": "*/5 * * * *"},
            Facts(points=used("02 09:00"), ended_at=at("02 09:01"), failures=2),
            "02 08:00",
            "02 10:19",
            span("02 10:05", "02 10:15", 3),
        ),
        # Also in the very second in which that attempt ended.
        (
            {"schedule": "*/5 * * * *"},
            Facts(points=used("02 09:00"), ended_at=at("02 09:47")),
            "02 08:00",
            "02 09:47",
            None,
        ),
        # A slice by hand starts the count anew, and so does the newest slice of the schedule.
        (
            {"schedule": "0 * * * *"},
            Facts(ended_at=at("02 11:30")),
            "02 08:00",
            "02 13:00",
            span("02 12:00", "02 12:00", 1),
        ),
        # A clock that was set back: what lies ahead of it counts for nothing.
        (
            {},
            Facts(points=used("09 09:00"), ended_at=at("09 09:01")),
            "02 08:00",
            "03 10:00",
            span("02 09:00", "03 09:00", 2),
        ),
        # Too many to count.
        ({"schedule": "* * * * *"}, Facts(), "02 08:00", "09 08:00", span("02 08:00", "09 07:59", 1000)),
    ],
)
def test_missed_are_the_points_that_passed_without_a_slice(
    changed: dict[str, Any], facts: Facts, since: str, now: str, missed: Span | None
) -> None:
    one, moment = job(**changed), at(now)
    point = owed_point(one, facts, at(since), moment)
    assert point is not None
    assert missed_span(one, at(since), idle_since(one, facts, at(since), moment), point, moment) == missed


def test_a_gap_of_a_busy_moment_is_none() -> None:
    often = job(schedule="every 1s")
    for late, missed in ((4, None), (8, Span(NINE, NINE + 7, 8))):
        assert missed_span(often, NINE, NINE - 1, NINE + late, NINE + late) == missed


def seen(tmp_path: Path, since: int, **changed: Any) -> Job:
    """A job that the ledger knows since then."""
    one = job(checkpoint=tmp_path / "nightly.json", **changed)
    with ledger_of(tmp_path.resolve()).writing() as tx:
        note(tx, plan_job(one, live=False).sighting, since)
    return one


def tally(tmp_path: Path) -> int:
    with ledger_of(tmp_path.resolve()).reading() as tx:
        row = tx.execute("SELECT count FROM tally WHERE name = 'missed'").fetchone()
    return int(row[0]) if row else 0


def slices(one: Job, *moments: str) -> list[list[dict[str, Any]]]:
    """What ticks at these moments tell of missed points and slices."""
    told = []
    for moment in moments:
        events: list[dict[str, Any]] = []
        with time_machine.travel(datetime.fromtimestamp(at(moment), UTC), tick=False):
            list(tick(job_file(one), {}, lambda _, event, kept=events: kept.append(event)))  # type: ignore[misc]
        told.append([event for event in events if event["event"] in ("missed", "made_up", "admitted")])
    return told


GOES_ON = {"message": {"content": "part"}, "finish_reason": "length"}


def missed_event(first: str, last: str, count: int, **why: str) -> dict[str, Any]:
    name = "missed" if why else "made_up"
    return {"event": name, **why, "first": utc_text(at(first)), "last": utc_text(at(last)), "count": count}


def test_one_slice_makes_up_for_a_span_and_one_line_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline, "demo", lambda _: GOES_ON)
    one = seen(tmp_path, SINCE)
    first, second, third, fourth = slices(one, "05 12:00", "05 12:01", "06 09:00", "08 09:00")
    assert [event["event"] for event in first] == ["made_up", "admitted"]
    assert first[0] == missed_event("02 09:00", "05 09:00", 4)
    assert second == []
    assert [event["event"] for event in third] == ["admitted"]
    assert fourth[0] == missed_event("07 09:00", "07 09:00", 1)
    assert tally(tmp_path) == 5


def test_without_catch_up_each_missed_point_is_skipped_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offline, "demo", lambda _: GOES_ON)
    one, why = seen(tmp_path, SINCE, catch_up=False), "catch_up is false"
    late, again, on_time, after = slices(one, "05 12:00", "05 12:01", "08 09:01", "09 09:00")
    assert late == [missed_event("02 09:00", "05 09:00", 4, why=why)]
    assert again == []
    assert on_time[0] == missed_event("06 09:00", "07 09:00", 2, why=why)
    assert [event["event"] for event in on_time + after] == ["missed", "admitted", "admitted"]
    assert tally(tmp_path) == 6


def test_what_is_refused_tells_of_no_missed_point_until_a_slice_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offline, "demo", lambda _: GOES_ON)
    one = seen(tmp_path, SINCE)
    assert slices(dataclasses.replace(one, read=(Source(name="x", path=tmp_path / "x"),)), "05 12:00", "05 12:01") == [
        [],
        [],
    ]
    assert tally(tmp_path) == 0
    assert slices(one, "05 12:02")[0][0] == missed_event("02 09:00", "05 09:00", 4)


def test_points_before_a_person_acted_are_not_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline, "demo", lambda _: GOES_ON)
    one = seen(tmp_path, SINCE)
    with ledger_of(tmp_path.resolve()).writing() as tx:
        tx.execute("INSERT INTO act VALUES ('nightly.json', 1, ?, 'review', '', '', 'me')", (at("04 10:00"),))
    assert slices(one, "05 12:00")[0][0] == missed_event("05 09:00", "05 09:00", 1)


def test_after_not_after_nothing_is_made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline, "demo", lambda _: GOES_ON)
    one = seen(tmp_path, SINCE, not_after=at("03 09:00"))
    told = slices(one, "03 09:01", "04 09:00", "05 09:00")
    assert [[event["event"] for event in events] for events in told] == [["made_up", "admitted"], [], []]
    late = seen(tmp_path, SINCE, not_after=at("03 09:00"), id="late")
    late = dataclasses.replace(late, checkpoint=tmp_path / "late.json")
    with ledger_of(tmp_path.resolve()).writing() as tx:
        note(tx, plan_job(late, live=False).sighting, SINCE)
    told = slices(late, "04 09:00", "05 09:00")
    assert told == [[missed_event("02 09:00", "03 09:00", 2, why="not_after has passed")], []]


# ---- enabled, max_attempts


def test_a_disabled_job_owes_nothing_and_no_point_of_its_rest_is_made_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offline, "demo", lambda _: GOES_ON)
    one = seen(tmp_path, SINCE)
    resting = dataclasses.replace(one, enabled=False)
    assert slices(resting, "05 12:00", "06 09:00") == [[], []]
    [result] = owed.select([resting], False, at("06 09:00"), lambda *_: None)
    assert isinstance(result, owed.Result)
    assert (result.final, result.refusal) == ("disabled", None)
    [result] = owed.select([resting], False, at("06 09:00"), lambda *_: None, by_hand=True)
    assert isinstance(result, owed.Result)
    assert isinstance(result.refusal, JobDisabled)
    awake = slices(one, "07 12:00", "08 09:00")
    assert [[event["event"] for event in events] for events in awake] == [[], ["admitted"]]


def test_a_lower_max_attempts_exhausts_a_job_at_the_next_look_and_a_higher_one_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "nightly.json"
    one = job(checkpoint=path)
    for _ in range(3):
        resume_once("t", path, lambda _: GOES_ON, "offline-demo")
    told: list[dict[str, Any]] = []
    now = time.time()
    for limit, final, lines in ((4, None, 0), (3, "exhausted", 1), (2, "exhausted", 1), (4, "exhausted", 1)):
        changed = dataclasses.replace(one, max_attempts=limit)
        [found] = owed.select([changed], False, now, lambda _, event: told.append(event))
        assert (found.final if isinstance(found, owed.Result) else None) == final
        assert len(told) == lines
    assert told == [{"event": "closed", "attempts": 3, "of": 3}]
    outlook, refusal = forecast(plan_job(one, live=False), job_file(one), {}, None)
    assert (outlook.status, outlook.left, refusal) == ("exhausted", 0, None)
    assert [note for note in outlook.notes if "resumed renew nightly" in note]


# ---- check --days


@pytest.mark.parametrize(
    ("changed", "days", "requests"),
    [
        ({}, 1, 1),
        ({}, 3, 3),
        ({}, 30, 4),
        ({}, None, 4),
        ({"max_attempts": 2}, 30, 2),
        ({"schedule": "every 1h"}, 1, 4),
        ({"schedule": "0 9 * * mon"}, 3, 0),
        ({"enabled": False}, 30, 0),
        ({"not_after": at("04 08:00")}, 30, 1),
    ],
)
def test_the_most_requests_within_so_many_days(
    tmp_path: Path, changed: dict[str, Any], days: int | None, requests: int
) -> None:
    one = job(checkpoint=tmp_path / "nightly.json", **changed)
    with time_machine.travel(datetime(2026, 3, 3, 8, 30, tzinfo=UTC), tick=False):
        outlook, _ = forecast(plan_job(one, live=False), job_file(one), {}, days)
    assert outlook.most.requests == requests


def test_a_point_that_is_owed_now_is_one_request_of_the_days_ahead(tmp_path: Path) -> None:
    one = seen(tmp_path, SINCE)
    with time_machine.travel(datetime(2026, 3, 5, 12, tzinfo=UTC), tick=False):
        outlook, _ = forecast(plan_job(one, live=False), job_file(one), {}, 1)
        [last] = [forecast(plan_job(dataclasses.replace(one, after_failure=()), False), job_file(one), {}, 1)[0].last]
    assert outlook.most.requests == 2
    assert last == datetime(2026, 3, 8, 9, tzinfo=UTC)  # now, and the three mornings after it


@pytest.mark.parametrize(
    ("changed", "noted"),
    [
        ({}, True),
        ({"schedule": "every 1d"}, True),
        ({"timezone": "Europe/Berlin", "schedule": "30 2 * * *"}, True),
        ({"schedule": "0 9,21 * * *"}, False),
        ({"enabled": False}, False),
    ],
)
def test_points_a_day_apart_are_noted_once(tmp_path: Path, changed: dict[str, Any], noted: bool) -> None:
    one = job(checkpoint=tmp_path / "nightly.json", **changed)
    with time_machine.travel(datetime(2026, 3, 28, 0, 30, tzinfo=UTC), tick=False):
        outlook, _ = forecast(plan_job(one, live=False), job_file(one), {}, 7)
    assert len([note for note in outlook.notes if "series" in note]) == noted


def test_what_moves_or_ends_the_points_is_named(tmp_path: Path) -> None:
    one = job(checkpoint=tmp_path / "nightly.json", jitter=600)
    outlook, _ = forecast(plan_job(one, live=False), job_file(one), {}, None)
    assert outlook.words == "at 09:00 every day, with jitter"
    over = job(checkpoint=tmp_path / "nightly.json", not_after=at("02 09:00"))
    outlook, _ = forecast(plan_job(over, live=False), job_file(over), {}, None)
    assert (outlook.points, outlook.last, outlook.most.requests) == ((), None, 0)
    assert [note for note in outlook.notes if note.startswith("not_after has passed")]


def test_points_have_their_offset_and_a_mark_after_a_clock_change(tmp_path: Path) -> None:
    one = job(checkpoint=tmp_path / "nightly.json", timezone="Europe/Berlin", schedule="30 2 * * *")
    with time_machine.travel(datetime(2026, 3, 27, 12, tzinfo=UTC), tick=False):
        outlook, _ = forecast(plan_job(one, live=False), job_file(one), {}, 3)
    assert [(point.isoformat(), mark) for point, mark in outlook.points] == [
        ("2026-03-28T02:30:00+01:00", ""),
        ("2026-03-29T03:00:00+02:00", "clock forward 1 h"),
        ("2026-03-30T02:30:00+02:00", ""),
    ]


def test_an_owed_rehearsal_costs_nothing_and_a_live_job_by_its_window(tmp_path: Path) -> None:
    provider = dataclasses.replace(LOCAL, context_tokens=10_000, price=Price(input=1, output=1, currency="EUR"))
    one = job(checkpoint=tmp_path / "nightly.json", provider=provider)
    for live, tokens in ((False, 0), (True, 40_000)):
        outlook, _ = forecast(plan_job(one, live), job_file(one, live=live), {}, None)
        assert (outlook.most.offline, outlook.most.tokens) == (not live, tokens)
