-- Which dead letters were copied to another system. Binaries that know version 4 store dead letters
-- without it: those are not copied yet.
ALTER TABLE sluice_dead_letters
    ADD COLUMN copied boolean NOT NULL DEFAULT false;

CREATE INDEX sluice_dead_letters_uncopied
    ON sluice_dead_letters (namespace, topic, consumer_group, partition, id)
    WHERE NOT copied;
