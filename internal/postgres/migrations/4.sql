-- Which redrive the recorded attempts belong to, and how many of them began and
-- never returned. Binaries that know version 3 count those in trial_attempts.
ALTER TABLE sluice_checkpoints
    ADD COLUMN trial_dead_letter bigint  NOT NULL DEFAULT 0, -- id; 0: the event after the position
    ADD COLUMN trial_unreturned  integer NOT NULL DEFAULT 0;
