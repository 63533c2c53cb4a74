-- That the partition has a checkpoint: programs that know version 1 keep this column, and do not write it.
ALTER TABLE sluice_leases ADD COLUMN began_incarnation TEXT NOT NULL DEFAULT ''; -- of the topic whose start was stored; empty: none
