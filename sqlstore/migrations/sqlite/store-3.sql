-- What the steps of a partition have seen of chain ids: one row per step and
-- origin of ids, removed when later ones let it be forgotten.
CREATE TABLE sluice_seen (
    namespace      TEXT    NOT NULL,
    topic          TEXT    NOT NULL,
    consumer_group TEXT    NOT NULL,
    partition      TEXT    NOT NULL,
    origin         TEXT    NOT NULL, -- source/partition of the ids
    step           INTEGER NOT NULL, -- the step's last event
    epoch          INTEGER NOT NULL, -- the origin's highest so far
    low            INTEGER NOT NULL, -- its watermark
    top            INTEGER NOT NULL, -- the highest event among ids
    seen_at        TEXT    NOT NULL, -- UTC, by the log's clock
    ids            TEXT    NOT NULL, -- new with the step: n:first,distance+more,…;n:…
    PRIMARY KEY (namespace, topic, consumer_group, partition, origin, step)
) STRICT, WITHOUT ROWID;
