-- One row per partition ever leased. Times are UTC. Texts are equal only if their bytes are, but for
-- trailing blanks; group_key tells groups apart that differ in those alone.
CREATE TABLE sluice_leases (
    group_key      binary(32)    NOT NULL, -- SHA-256 of namespace, topic and consumer_group, which together are too long for a key
    namespace      nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    topic          nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    consumer_group nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL,
    partition      nvarchar(64)  COLLATE Latin1_General_100_BIN2 NOT NULL,
    owner          nvarchar(512) COLLATE Latin1_General_100_BIN2 NOT NULL, -- the process that has, or had, the partition
    epoch          bigint        NOT NULL, -- rises with every owner
    expires_at     datetime2(6),           -- NULL once the lease was released
    renewed_at     datetime2(6)  NOT NULL,
    CONSTRAINT sluice_leases_key PRIMARY KEY CLUSTERED (group_key, partition)
);
