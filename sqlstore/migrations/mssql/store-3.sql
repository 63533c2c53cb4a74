-- Where the events begin that a checkpoint accounts for. Programs that know version 2 keep these
-- columns, and do not write them: what they begin says nothing, and what they reset no longer says it.
ALTER TABLE sluice_checkpoints ADD began_sequence bigint NOT NULL -- the event before the first one
    CONSTRAINT sluice_checkpoints_began_sequence DEFAULT 0;
ALTER TABLE sluice_checkpoints ADD began_how nvarchar(16) COLLATE Latin1_General_100_BIN2 NOT NULL -- start, import or set; empty: not known
    CONSTRAINT sluice_checkpoints_began_how DEFAULT N'';
