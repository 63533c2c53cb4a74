-- One row per partition ever claimed. Times are UTC. Each table is clustered by group and partition, so
-- that a statement locks rows of its own partition only.
CREATE TABLE sluice_checkpoints (
    group_key         binary(32)    NOT NULL, -- SHA-256 of namespace, topic and consumer_group, which together are too long for a key
    namespace         nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    topic             nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    consumer_group    nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL,
    partition         nvarchar(64)  COLLATE Latin1_General_100_BIN2 NOT NULL,
    incarnation       nvarchar(64)  COLLATE Latin1_General_100_BIN2 NOT NULL, -- of the topic: its creation time
    sequence_number   bigint        NOT NULL, -- the last event done; -1: none, -2: no start chosen yet
    event_offset      nvarchar(512) COLLATE Latin1_General_100_BIN2 NOT NULL,
    owner             nvarchar(512) COLLATE Latin1_General_100_BIN2 NOT NULL, -- who claimed it last; empty if an operator set it
    epoch             bigint        NOT NULL, -- of that claim
    claims            bigint        NOT NULL, -- claims without progress since
    trial_sequence    bigint        NOT NULL, -- the event being tried, if trial_attempts is not 0
    trial_dead_letter bigint        NOT NULL DEFAULT 0, -- id; 0: the event after the position
    trial_attempts    bigint        NOT NULL,
    trial_error       nvarchar(max) COLLATE Latin1_General_100_BIN2 NOT NULL,
    trial_unreturned  bigint        NOT NULL DEFAULT 0, -- attempts that began and never returned
    updated_at        datetime2(6)  NOT NULL,
    -- What is done after the position, for deliveries that are not transactions: runs of events, as
    -- "missing+more, ...". It counts only where done_epoch is the checkpoint's epoch.
    done              nvarchar(max) COLLATE Latin1_General_100_BIN2 NOT NULL DEFAULT N'',
    done_epoch        bigint        NOT NULL DEFAULT 0,
    CONSTRAINT sluice_checkpoints_key PRIMARY KEY CLUSTERED (group_key, partition)
);

CREATE TABLE sluice_dead_letters (
    group_key       binary(32)    NOT NULL,
    id              bigint        IDENTITY NOT NULL, -- has gaps, also of many numbers after a restart of the server
    namespace       nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    topic           nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    consumer_group  nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL,
    incarnation     nvarchar(64)  COLLATE Latin1_General_100_BIN2 NOT NULL,
    partition       nvarchar(64)  COLLATE Latin1_General_100_BIN2 NOT NULL,
    sequence_number bigint        NOT NULL,
    event_offset    nvarchar(512) COLLATE Latin1_General_100_BIN2 NOT NULL,
    enqueued_at     datetime2(6)  NOT NULL,
    failed_at       datetime2(6)  NOT NULL,
    error           nvarchar(max) COLLATE Latin1_General_100_BIN2 NOT NULL,
    attempts        bigint        NOT NULL,
    status          nvarchar(16)  COLLATE Latin1_General_100_BIN2 NOT NULL, -- dead, retry or discarded
    next_attempt    datetime2(6),           -- of status retry
    partition_key   nvarchar(max) COLLATE Latin1_General_100_BIN2 NOT NULL,
    message_id      nvarchar(max) COLLATE Latin1_General_100_BIN2 NOT NULL,
    correlation_id  nvarchar(max) COLLATE Latin1_General_100_BIN2 NOT NULL,
    content_type    nvarchar(max) COLLATE Latin1_General_100_BIN2 NOT NULL,
    has_body        bit           NOT NULL, -- 0: the event is only in the log
    body            varbinary(max),
    properties      nvarchar(max) COLLATE Latin1_General_100_BIN2, -- JSON; types other than JSON's are named
    CONSTRAINT sluice_dead_letters_event PRIMARY KEY CLUSTERED (group_key, partition, incarnation, sequence_number),
    CONSTRAINT sluice_dead_letters_id UNIQUE (id)
);

CREATE INDEX sluice_dead_letters_status ON sluice_dead_letters (group_key, partition, status, sequence_number);

-- What the steps of a partition have seen of causation IDs: one row per step and origin of IDs,
-- removed when later ones let it be forgotten.
CREATE TABLE sluice_seen (
    group_key      binary(32)     NOT NULL,
    namespace      nvarchar(255)  COLLATE Latin1_General_100_BIN2 NOT NULL,
    topic          nvarchar(256)  COLLATE Latin1_General_100_BIN2 NOT NULL,
    consumer_group nvarchar(128)  COLLATE Latin1_General_100_BIN2 NOT NULL,
    partition      nvarchar(64)   COLLATE Latin1_General_100_BIN2 NOT NULL,
    origin_key     binary(32)     NOT NULL, -- SHA-256 of origin, which is too long for a key
    origin         nvarchar(4000) COLLATE Latin1_General_100_BIN2 NOT NULL, -- source/partition of the IDs
    step           bigint         NOT NULL, -- the step's last event
    epoch          bigint         NOT NULL, -- the origin's highest so far
    low            bigint         NOT NULL, -- its watermark
    [top]          bigint         NOT NULL, -- the highest event among ids
    seen_at        datetime2(6)   NOT NULL, -- by the log's clock
    ids            nvarchar(max)  COLLATE Latin1_General_100_BIN2 NOT NULL, -- new with the step: n:first,distance+more,...;n:...
    CONSTRAINT sluice_seen_step PRIMARY KEY CLUSTERED (group_key, partition, origin_key, step)
);
