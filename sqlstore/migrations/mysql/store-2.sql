-- Which dead letters were copied to another system. Programs that know version 1 store dead letters
-- without it: those are not copied yet. MySQL has no ADD COLUMN IF NOT EXISTS.
SET @sluice_step = (
    SELECT IF(COUNT(*) > 0, 'DO 0', 'ALTER TABLE sluice_dead_letters ADD COLUMN copied BOOLEAN NOT NULL DEFAULT FALSE, ADD KEY sluice_dead_letters_copied (namespace, topic, consumer_group, `partition`, copied, id)')
    FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = 'sluice_dead_letters' AND column_name = 'copied'
);
PREPARE sluice_step FROM @sluice_step;
EXECUTE sluice_step;
DEALLOCATE PREPARE sluice_step;
