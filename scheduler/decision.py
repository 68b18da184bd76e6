"""What a person decides about an answer: the moves of a review, and its words. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final, Literal

from scheduler.state import MAX_STEPS, Message, Review, State

Word = Literal["unreviewed", "approved", "rejected"]
SHORTEST_DIGEST: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """One delivery of an answer; times are UTC seconds. `result` is None while its process lives.

    It is `unknown` where nobody can say what came of it; `closed` tells whether its row says so already.
    """

    number: int
    target: str
    who: str
    started_at: int
    result: Literal["delivered", "failed", "unknown"] | None
    detail: str
    pid: int = 0
    closed: bool = True

    @property
    def untold(self) -> bool:
        """Tell whether its process died before it could say what came of it, and nobody was told."""
        return self.result == "unknown" and not self.closed


def answer_digest(answer: str) -> str:
    """Return the SHA-256 by which a decision is bound to an answer."""
    return hashlib.sha256(answer.encode()).hexdigest()


def review_of(state: State) -> Review | None:
    """Return the decision about the present answer; one about any other answer does not count."""
    answer, review = state["answer"], state["review"]
    return review if answer is not None and review and review["answer_sha256"] == answer_digest(answer) else None


def review_word(state: State) -> Word | None:
    """Say where the answer stands; None where there is none."""
    review = review_of(state)
    return review["decision"] if review else "unreviewed" if state["answer"] is not None else None


def rejection(state: State) -> str | None:
    """Return why the last answer was rejected, of a document that no attempt went on from yet."""
    review, last = state["review"], state["history"][-1] if state["history"] else None
    waits = state["status"] == "ready" and last is not None and last["outcome"] == "answered"
    return review["note"] if waits and review and review["decision"] == "rejected" else None


def approve(state: State, *, note: str, who: str, when: str) -> State:
    """Return a done document whose answer is approved. Raises ValueError where there is no answer."""
    return _decided(state, "approved", note, who, when)


def reject(state: State, *, note: str, who: str, when: str, max_attempts: int) -> State:
    """Return a done document whose answer is rejected.

    With attempts left it is ready again: the note joins the conversation as the user's, and the answer is gone from
    its place. Raises ValueError where there is no answer.
    """
    rejected = _decided(state, "rejected", note, who, when)
    if state["attempts"] < min(max_attempts, MAX_STEPS):
        rejected["conversation"] = [*_with_answer(state), {"role": "user", "content": note}]
        rejected["status"], rejected["answer"] = "ready", None
    return rejected


def _with_answer(state: State) -> list[Message]:
    """Return the conversation; an adopted document may hold an answer that does not stand in it."""
    turns = state["conversation"]
    answered = bool(turns) and turns[-1]["role"] == "assistant"
    return turns if answered else [*turns, {"role": "assistant", "content": state["answer"]}]


def _decided(state: State, decision: Literal["approved", "rejected"], note: str, who: str, when: str) -> State:
    if state["answer"] is None:
        raise ValueError(f"there is no answer; it is {state['status']}")
    decided = state.copy()
    digest = answer_digest(state["answer"])
    decided["review"] = Review(decision=decision, note=note, who=who, when=when, answer_sha256=digest)
    return decided


def dispatch_words(dispatch: Dispatch) -> str:
    """Say how a delivery stands."""
    said = f": {dispatch.detail}" if dispatch.detail else ""
    match dispatch.result:
        case None:
            return "being delivered"
        case "delivered":
            return "delivered"
        case "failed":
            return f"delivery failed{said}"
    return f"delivery unknown{said}"
