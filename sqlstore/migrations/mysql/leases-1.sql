-- One row per partition ever leased. Times are UTC.
CREATE TABLE IF NOT EXISTS sluice_leases (
    namespace      VARCHAR(255) NOT NULL,
    topic          VARCHAR(255) NOT NULL,
    consumer_group VARCHAR(128) NOT NULL,
    `partition`    VARCHAR(64)  NOT NULL,
    owner          VARCHAR(512) NOT NULL, -- the process that has, or had, the partition
    epoch          BIGINT       NOT NULL, -- rises with every owner
    expires_at     DATETIME(6),           -- NULL once the lease was released
    renewed_at     DATETIME(6)  NOT NULL,
    PRIMARY KEY (namespace, topic, consumer_group, `partition`)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE @collation;
