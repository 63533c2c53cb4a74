-- Where the events begin that a checkpoint accounts for. Programs that know version 2 keep these
-- columns, and do not write them: what they begin says nothing, and what they reset no longer says it.
-- began_sequence is the event before the first one; began_how is start, import or set; empty: not known.
SET @sluice_step = (
    SELECT IF(COUNT(*) > 0, 'DO 0', 'ALTER TABLE sluice_checkpoints ADD COLUMN began_sequence BIGINT NOT NULL DEFAULT 0, ADD COLUMN began_how VARCHAR(16) NOT NULL DEFAULT ''''')
    FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = 'sluice_checkpoints' AND column_name = 'began_how'
);
PREPARE sluice_step FROM @sluice_step;
EXECUTE sluice_step;
DEALLOCATE PREPARE sluice_step;
