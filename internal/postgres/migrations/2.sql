-- What is done behind a checkpoint's position, for deliveries that are not
-- transactions: runs of events, as "missing+more, …" (see internal/ranges).
-- It counts only where done_epoch is the checkpoint's epoch: binaries that
-- know version 1 claim and move checkpoints without it.
ALTER TABLE sluice_checkpoints
    ADD COLUMN done       text   NOT NULL DEFAULT '',
    ADD COLUMN done_epoch bigint NOT NULL DEFAULT 0;
