-- One row per partition ever leased. Times are UTC text, as all over the schema.
CREATE TABLE sluice_leases (
    namespace      TEXT    NOT NULL,
    topic          TEXT    NOT NULL,
    consumer_group TEXT    NOT NULL,
    partition      TEXT    NOT NULL,
    owner          TEXT    NOT NULL, -- the process that has, or had, the partition
    epoch          INTEGER NOT NULL, -- rises with every owner
    expires_at     TEXT,             -- UTC; NULL once the lease was given back
    renewed_at     TEXT    NOT NULL, -- UTC
    PRIMARY KEY (namespace, topic, consumer_group, partition)
) STRICT;
