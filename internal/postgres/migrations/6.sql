-- Where the events begin that a checkpoint accounts for, and on the lease that there is a checkpoint.
-- Binaries that know version 5 keep these columns, and do not write them: what they begin says nothing,
-- and what they reset no longer says it.
ALTER TABLE sluice_checkpoints
    ADD COLUMN began_sequence bigint NOT NULL DEFAULT 0, -- the event before the first one
    ADD COLUMN began_how      text   NOT NULL DEFAULT ''; -- start, import or set; empty: not known

ALTER TABLE sluice_leases
    ADD COLUMN began_incarnation text NOT NULL DEFAULT ''; -- of the topic whose start was stored; empty: none
