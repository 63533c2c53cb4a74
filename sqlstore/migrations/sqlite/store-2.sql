-- What is done behind a checkpoint's position, for deliveries that are not
-- transactions: runs of events, as "missing+more, …" (see internal/ranges).
-- It counts only where done_epoch is the checkpoint's epoch: programs that
-- know version 1 claim and move checkpoints without it.
ALTER TABLE sluice_checkpoints ADD COLUMN done TEXT NOT NULL DEFAULT '';
ALTER TABLE sluice_checkpoints ADD COLUMN done_epoch INTEGER NOT NULL DEFAULT 0;

-- The keys that dead letters hold back are asked for every few seconds.
CREATE INDEX sluice_dead_letters_keys
    ON sluice_dead_letters (namespace, topic, consumer_group, partition, partition_key)
    WHERE status <> 'discarded' AND partition_key <> '';
