-- The state of autoscalers, with the columns that SQLite has. Times are nanoseconds since
-- 1970. content is JSON as text: it is read and written as a whole.
CREATE TABLE sluice_autoscale_memory (
    resource text   PRIMARY KEY,
    version  bigint NOT NULL,
    content  text   NOT NULL -- all but the windows
) WITH (fillfactor = 50);
CREATE TABLE sluice_autoscale_windows (
    resource text NOT NULL,
    metric   text NOT NULL,
    content  text NOT NULL,
    PRIMARY KEY (resource, metric)
);
CREATE TABLE sluice_autoscale_outcomes (
    resource text   PRIMARY KEY,
    number   bigint NOT NULL,
    content  text   NOT NULL
);
CREATE TABLE sluice_autoscale_records (
    resource text   NOT NULL,
    sequence bigint NOT NULL,
    time     bigint NOT NULL,
    content  text   NOT NULL,
    PRIMARY KEY (resource, sequence)
);
CREATE INDEX sluice_autoscale_records_by_time ON sluice_autoscale_records (resource, time);
CREATE TABLE sluice_autoscale_messages (
    id         bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue      text    NOT NULL,
    body       bytea   NOT NULL,
    hidden     bigint  NOT NULL DEFAULT 0,
    deliveries integer NOT NULL DEFAULT 0,
    aside      text -- why it is a dead letter; NULL: it is none
);
CREATE INDEX sluice_autoscale_messages_by_queue ON sluice_autoscale_messages (queue, id) WHERE aside IS NULL;
CREATE TABLE sluice_autoscale_leases (
    resource text   PRIMARY KEY,
    owner    text   NOT NULL,
    until    bigint NOT NULL,
    content  text   NOT NULL
) WITH (fillfactor = 50);
