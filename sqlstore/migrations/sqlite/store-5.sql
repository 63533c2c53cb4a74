-- Which dead letters were copied to another system. Programs that know version 4
-- store dead letters without it: those are not copied yet.
ALTER TABLE sluice_dead_letters ADD COLUMN copied INTEGER NOT NULL DEFAULT 0;

CREATE INDEX sluice_dead_letters_uncopied
    ON sluice_dead_letters (namespace, topic, consumer_group, partition, id)
    WHERE copied = 0;
