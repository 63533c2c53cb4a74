-- Which dead letters were copied to another system. Programs that know version 1 store dead letters
-- without it: those are not copied yet.
ALTER TABLE sluice_dead_letters ADD copied bit NOT NULL CONSTRAINT sluice_dead_letters_not_copied DEFAULT 0;

-- In the same batch the new column has no name yet.
EXEC(N'CREATE INDEX sluice_dead_letters_copied ON sluice_dead_letters (group_key, partition, copied, id)');
