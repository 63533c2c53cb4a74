-- What the steps of a partition have seen of chain ids: one row per step and
-- origin of ids, removed when later ones let it be forgotten.
CREATE TABLE sluice_seen (
    namespace      text        NOT NULL,
    topic          text        NOT NULL,
    consumer_group text        NOT NULL,
    partition      text        NOT NULL,
    origin         text        NOT NULL, -- source/partition of the ids
    step           bigint      NOT NULL, -- the step's last event
    epoch          bigint      NOT NULL, -- the origin's highest so far
    low            bigint      NOT NULL, -- its watermark
    top            bigint      NOT NULL, -- the highest event among ids
    seen_at        timestamptz NOT NULL, -- by the log's clock
    ids            text        NOT NULL, -- new with the step: n:first,distance+more,…;n:…
    PRIMARY KEY (namespace, topic, consumer_group, partition, origin, step)
);
