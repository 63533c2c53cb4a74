-- That the partition has a checkpoint: programs that know version 1 keep this column, and do not write it.
-- began_incarnation is that of the topic whose start was stored; empty: none.
SET @sluice_step = (
    SELECT IF(COUNT(*) > 0, 'DO 0', 'ALTER TABLE sluice_leases ADD COLUMN began_incarnation VARCHAR(64) NOT NULL DEFAULT ''''')
    FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = 'sluice_leases' AND column_name = 'began_incarnation'
);
PREPARE sluice_step FROM @sluice_step;
EXECUTE sluice_step;
DEALLOCATE PREPARE sluice_step;
