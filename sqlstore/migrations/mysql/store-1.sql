-- One row per partition ever claimed. Times are UTC.
CREATE TABLE IF NOT EXISTS sluice_checkpoints (
    namespace         VARCHAR(255) NOT NULL,
    topic             VARCHAR(255) NOT NULL,
    consumer_group    VARCHAR(128) NOT NULL,
    `partition`       VARCHAR(64)  NOT NULL,
    incarnation       VARCHAR(64)  NOT NULL, -- of the topic: its creation time
    sequence_number   BIGINT       NOT NULL, -- the last event done; -1: none, -2: no start chosen yet
    event_offset      VARCHAR(512) NOT NULL,
    owner             VARCHAR(512) NOT NULL, -- who claimed it last; empty if an operator set it
    epoch             BIGINT       NOT NULL, -- of that claim
    claims            BIGINT       NOT NULL, -- claims without progress since
    trial_sequence    BIGINT       NOT NULL, -- the event being tried, if trial_attempts is not 0
    trial_dead_letter BIGINT       NOT NULL DEFAULT 0, -- id; 0: the event after the position
    trial_attempts    BIGINT       NOT NULL,
    trial_error       MEDIUMTEXT   NOT NULL,
    trial_unreturned  BIGINT       NOT NULL DEFAULT 0, -- attempts that began and never returned
    updated_at        DATETIME(6)  NOT NULL,
    -- What is done after the position, for deliveries that are not transactions: runs of events, as
    -- "missing+more, …". It counts only where done_epoch is the checkpoint's epoch.
    done              MEDIUMTEXT   NOT NULL DEFAULT (''),
    done_epoch        BIGINT       NOT NULL DEFAULT 0,
    PRIMARY KEY (namespace, topic, consumer_group, `partition`)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE @collation;

CREATE TABLE IF NOT EXISTS sluice_dead_letters (
    id              BIGINT       NOT NULL AUTO_INCREMENT,
    namespace       VARCHAR(255) NOT NULL,
    topic           VARCHAR(255) NOT NULL,
    consumer_group  VARCHAR(128) NOT NULL,
    incarnation     VARCHAR(64)  NOT NULL,
    `partition`     VARCHAR(64)  NOT NULL,
    sequence_number BIGINT       NOT NULL,
    event_offset    VARCHAR(512) NOT NULL,
    enqueued_at     DATETIME(6)  NOT NULL,
    failed_at       DATETIME(6)  NOT NULL,
    error           MEDIUMTEXT   NOT NULL,
    attempts        BIGINT       NOT NULL,
    status          VARCHAR(16)  NOT NULL, -- dead, retry or discarded
    next_attempt    DATETIME(6),           -- of status retry
    partition_key   MEDIUMTEXT   NOT NULL,
    message_id      MEDIUMTEXT   NOT NULL,
    correlation_id  MEDIUMTEXT   NOT NULL,
    content_type    MEDIUMTEXT   NOT NULL,
    has_body        BOOLEAN      NOT NULL, -- 0: the event is only in the log
    body            LONGBLOB,
    properties      LONGTEXT,              -- JSON; types other than JSON's are named
    PRIMARY KEY (id),
    UNIQUE KEY sluice_dead_letters_event (namespace, topic, consumer_group, incarnation, `partition`, sequence_number),
    KEY sluice_dead_letters_status (namespace, topic, consumer_group, `partition`, status, sequence_number)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE @collation;

-- What the steps of a partition have seen of causation IDs: one row per step and origin of IDs,
-- removed when later ones let it be forgotten. An origin is too long for a key: its hash stands for it.
CREATE TABLE IF NOT EXISTS sluice_seen (
    namespace      VARCHAR(255)  NOT NULL,
    topic          VARCHAR(255)  NOT NULL,
    consumer_group VARCHAR(128)  NOT NULL,
    `partition`    VARCHAR(64)   NOT NULL,
    origin         VARCHAR(4096) NOT NULL, -- source/partition of the IDs
    origin_hash    BINARY(32) AS (UNHEX(SHA2(origin, 256))) STORED,
    step           BIGINT        NOT NULL, -- the step's last event
    epoch          BIGINT        NOT NULL, -- the origin's highest so far
    low            BIGINT        NOT NULL, -- its watermark
    top            BIGINT        NOT NULL, -- the highest event among ids
    seen_at        DATETIME(6)   NOT NULL, -- by the log's clock
    ids            MEDIUMTEXT    NOT NULL, -- new with the step: n:first,distance+more,…;n:…
    id             BIGINT        NOT NULL AUTO_INCREMENT,
    PRIMARY KEY (id),
    UNIQUE KEY sluice_seen_step (namespace, topic, consumer_group, `partition`, origin_hash, step)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE @collation;
