"""The tables of a ledger."""

from __future__ import annotations

VERSION = 1

SCHEMA = """
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
