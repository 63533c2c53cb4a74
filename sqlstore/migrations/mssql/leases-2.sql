-- That the partition has a checkpoint: programs that know version 1 keep this column, and do not write it.
ALTER TABLE sluice_leases ADD began_incarnation nvarchar(64) COLLATE Latin1_General_100_BIN2 NOT NULL
    CONSTRAINT sluice_leases_began_incarnation DEFAULT N''; -- of the topic whose start was stored; empty: none
