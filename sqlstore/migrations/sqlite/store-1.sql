-- One row per partition ever claimed. Times are UTC text of a fixed width: a
-- person can read them, date functions take them, and they sort by time.
CREATE TABLE sluice_checkpoints (
    namespace       TEXT    NOT NULL,
    topic           TEXT    NOT NULL,
    consumer_group  TEXT    NOT NULL,
    partition       TEXT    NOT NULL,
    incarnation     TEXT    NOT NULL, -- of the topic: its creation time
    sequence_number INTEGER NOT NULL, -- the last event done; -1: none, -2: no start chosen yet
    event_offset    TEXT    NOT NULL,
    owner           TEXT    NOT NULL, -- who claimed it last; empty if it was set by hand
    epoch           INTEGER NOT NULL, -- of that claim
    claims          INTEGER NOT NULL, -- claims without progress since
    trial_sequence  INTEGER NOT NULL, -- the event being tried, if trial_attempts is not 0
    trial_attempts  INTEGER NOT NULL,
    trial_error     TEXT    NOT NULL,
    updated_at      TEXT    NOT NULL, -- UTC
    PRIMARY KEY (namespace, topic, consumer_group, partition)
) STRICT;

CREATE TABLE sluice_dead_letters (
    id              INTEGER PRIMARY KEY AUTOINCREMENT, -- never used again
    namespace       TEXT    NOT NULL,
    topic           TEXT    NOT NULL,
    consumer_group  TEXT    NOT NULL,
    incarnation     TEXT    NOT NULL,
    partition       TEXT    NOT NULL,
    sequence_number INTEGER NOT NULL,
    event_offset    TEXT    NOT NULL,
    enqueued_at     TEXT    NOT NULL, -- UTC
    failed_at       TEXT    NOT NULL, -- UTC
    error           TEXT    NOT NULL,
    attempts        INTEGER NOT NULL,
    status          TEXT    NOT NULL, -- dead, retry or discarded
    next_attempt    TEXT,             -- UTC, of status retry
    partition_key   TEXT    NOT NULL,
    message_id      TEXT    NOT NULL,
    correlation_id  TEXT    NOT NULL,
    content_type    TEXT    NOT NULL,
    has_body        INTEGER NOT NULL, -- 0: the event is only in the log
    body            BLOB,
    properties      TEXT,             -- JSON; types other than JSON's are named
    UNIQUE (namespace, topic, consumer_group, incarnation, partition, sequence_number)
) STRICT;

CREATE INDEX sluice_dead_letters_due
    ON sluice_dead_letters (namespace, topic, consumer_group, partition, sequence_number, next_attempt)
    WHERE status = 'retry';
