"""The tables of a ledger, and how one that an older version made becomes one of this version.

A ledger's version is the number of scripts that made it. A script is never changed once it was released; a later one
only adds tables, so that a reader can stand empty ones in for those that an older ledger does not have.
"""

from __future__ import annotations

from typing import Final

_ADMISSIONS: Final = """
CREATE TABLE document (
    checkpoint TEXT NOT NULL PRIMARY KEY, allowance INTEGER NOT NULL, body BLOB NOT NULL, digest TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE version (
    checkpoint TEXT NOT NULL, allowance INTEGER NOT NULL, digest TEXT NOT NULL,
    PRIMARY KEY (checkpoint, allowance, digest)
) WITHOUT ROWID;
CREATE TABLE admission (
    checkpoint TEXT NOT NULL, allowance INTEGER NOT NULL, attempt INTEGER NOT NULL CHECK (attempt IN (1, 2, 3, 4)),
    point INTEGER, job TEXT NOT NULL, provider TEXT NOT NULL, live INTEGER NOT NULL, task_sha TEXT NOT NULL,
    model TEXT NOT NULL, admitted_at INTEGER NOT NULL, deadline INTEGER NOT NULL,
    pid INTEGER NOT NULL, start TEXT NOT NULL, boot TEXT NOT NULL, outcome TEXT, ended_at INTEGER,
    PRIMARY KEY (checkpoint, allowance, attempt), UNIQUE (checkpoint, allowance, point)
) WITHOUT ROWID;
CREATE INDEX admission_day ON admission (admitted_at) WHERE live = 1;
CREATE TABLE job (
    job TEXT NOT NULL PRIMARY KEY, checkpoint TEXT NOT NULL, schedule TEXT NOT NULL, since INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE rest (
    provider TEXT NOT NULL, model TEXT NOT NULL, until INTEGER, reason TEXT NOT NULL, tag TEXT NOT NULL,
    step INTEGER NOT NULL, PRIMARY KEY (provider, model)
) WITHOUT ROWID;
CREATE TABLE archive (
    checkpoint TEXT NOT NULL, allowance INTEGER NOT NULL, number INTEGER NOT NULL, body BLOB NOT NULL,
    reason TEXT NOT NULL, who TEXT NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (checkpoint, allowance, number)
) WITHOUT ROWID;
CREATE TABLE orphan (
    checkpoint TEXT NOT NULL, allowance INTEGER NOT NULL, attempt INTEGER NOT NULL, at INTEGER NOT NULL,
    tag TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (checkpoint, allowance, attempt, at, tag)
) WITHOUT ROWID;
CREATE TABLE daemon (
    config TEXT NOT NULL PRIMARY KEY, pid INTEGER NOT NULL, start TEXT NOT NULL, boot TEXT NOT NULL,
    since INTEGER NOT NULL
) WITHOUT ROWID
"""

# What came with series, review, delivery, notifications and the daemon's heartbeat.
_LIVING: Final = """
CREATE TABLE opening (
    series TEXT NOT NULL, number INTEGER NOT NULL, point INTEGER NOT NULL, opening TEXT NOT NULL,
    checkpoint TEXT NOT NULL, status TEXT NOT NULL, opened_at INTEGER NOT NULL, passed INTEGER NOT NULL,
    PRIMARY KEY (series, number), UNIQUE (series, point), UNIQUE (series, opening)
) WITHOUT ROWID;
CREATE INDEX opening_file ON opening (checkpoint);
CREATE INDEX opening_unanswered ON opening (series, number) WHERE status != 'done';
CREATE TABLE delivery (
    checkpoint TEXT NOT NULL, allowance INTEGER NOT NULL, answer_sha256 TEXT NOT NULL, number INTEGER NOT NULL,
    target TEXT NOT NULL, who TEXT NOT NULL, started_at INTEGER NOT NULL, pid INTEGER NOT NULL, start TEXT NOT NULL,
    boot TEXT NOT NULL, result TEXT, detail TEXT NOT NULL, ended_at INTEGER,
    PRIMARY KEY (checkpoint, allowance, answer_sha256, number)
) WITHOUT ROWID;
CREATE TABLE act (
    checkpoint TEXT NOT NULL, number INTEGER NOT NULL, at INTEGER NOT NULL, command TEXT NOT NULL,
    detail TEXT NOT NULL, reason TEXT NOT NULL, who TEXT NOT NULL, PRIMARY KEY (checkpoint, number)
) WITHOUT ROWID;
CREATE TABLE told (
    subject TEXT NOT NULL, channel TEXT NOT NULL, matter TEXT NOT NULL, standing INTEGER, at INTEGER NOT NULL,
    fault TEXT NOT NULL, PRIMARY KEY (subject, channel, matter)
) WITHOUT ROWID;
CREATE TABLE pulse (
    config TEXT NOT NULL PRIMARY KEY, version TEXT NOT NULL, digest TEXT NOT NULL, loaded_at INTEGER NOT NULL,
    max_parallel INTEGER NOT NULL, tried TEXT NOT NULL, fault TEXT NOT NULL, at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE tally (name TEXT NOT NULL PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID
"""

SCRIPTS: Final = (_ADMISSIONS, _LIVING)
