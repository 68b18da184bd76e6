"""What is promised of a checkpoint and a schedule, small enough to be read at once. Pure; no code of ours."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Wish:
    """What jobs.yaml asks for."""

    task: str
    model: str = "m1"
    most: int = 4
    period: int = 300
    enabled: bool = True


@dataclass
class Sheet:
    """A checkpoint: what its ledger holds, and whether an unknown file stands at its path."""

    wish: Wish = field(default_factory=lambda: Wish(""))  # with which it was begun
    allowance: int = 0  # none yet: the ledger has no document
    attempts: int = 0
    status: str = "ready"
    answer: str | None = None
    open: bool = False  # in flight, or its process died and nobody has looked since
    unknown: bool = False
    archived: int = 0
    points: set[int | None] = field(default_factory=set)

    def edited(self, wish: Wish) -> bool:
        return self.attempts > 0 and (self.wish.task, self.wish.model) != (wish.task, wish.model)

    def take(self, wish: Wish) -> None:
        """Whoever holds the lock ends a dead attempt, and closes a document whose attempts are spent."""
        self.open = False
        if self.status == "ready" and 0 < self.attempts >= wish.most:
            self.status = "exhausted"

    def stops(self, wish: Wish, *, moved: bool) -> str:
        """Say why no request may go; nothing where one may."""
        if not wish.enabled or moved or self.unknown:
            return "disabled" if not wish.enabled else "moved" if moved else "unknown"
        self.take(wish)
        return self.status if self.status != "ready" else "edited" if self.edited(wish) else ""

    def count(self, wish: Wish, point: int | None) -> None:
        self.wish, self.allowance, self.attempts, self.open = wish, max(self.allowance, 1), self.attempts + 1, True
        self.points.add(point)

    def save(self, wish: Wish, answer: str | None) -> None:
        self.status, self.answer = ("ready", None) if answer is None else ("done", answer)
        self.take(wish)

    def begin(self, wish: Wish, *, renew: bool) -> None:
        """The old document is set aside; `revise` keeps the attempts, `renew` opens the next allowance."""
        self.archived += self.allowance > 0
        self.wish, self.status, self.answer, self.open = wish, "ready", None, False
        if renew:
            self.allowance, self.attempts, self.points = self.allowance + 1, 0, set()

    def adopt(self, file: "Sheet", wish: Wish) -> None:
        self.archived += self.allowance > 0
        self.wish, self.status, self.answer, self.unknown = file.wish, file.status, file.answer, False
        self.allowance, self.attempts = max(self.allowance, 1), max(self.attempts, file.attempts)
        self.take(wish)


@dataclass
class Calendar:
    """Since when the points of a schedule count, which in the future becomes now; the newest that is dealt with."""

    rule: object = None
    since: int = 0
    passed: int = 0

    def point(self, period: int, now: int, rule: object = None) -> int:
        if rule != self.rule or self.since > now:
            self.rule, self.since = rule, now
        return now - (now - self.since) % period
