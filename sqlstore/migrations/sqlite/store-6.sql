-- Where the events begin that a checkpoint accounts for. Programs that know version 5 keep these
-- columns, and do not write them: what they begin says nothing, and what they reset no longer says it.
ALTER TABLE sluice_checkpoints ADD COLUMN began_sequence INTEGER NOT NULL DEFAULT 0; -- the event before the first one
ALTER TABLE sluice_checkpoints ADD COLUMN began_how TEXT NOT NULL DEFAULT ''; -- start, import or set; empty: not known
