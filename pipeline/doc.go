// Package pipeline builds consumers from a YAML file, without programming.
//
//	p, err := pipeline.Load("flights.yaml")
//	parts, err := p.Open(ctx)
//	defer parts.Close(ctx)
//	consumer, err := parts.Consumer(ctx, nil)
//	err = consumer.Run(ctx)
//
// # The file
//
// This is the reference of all keys. A value shown is the default, where a key
// has one:
//
//	name: flights                       # the file's name without its extension
//	source:
//	  eventhub:
//	    connection: ${EVENTHUB_CONNECTION_STRING}
//	    namespace: contoso.servicebus.windows.net   # instead of connection, with
//	    credential: default             # azidentity.NewDefaultAzureCredential; in another cloud set AZURE_AUTHORITY_HOST, such as https://login.chinacloudapi.cn/
//	    hub: flights                    # unless the connection string names it
//	    consumer_group: $Default
//	    checkpoint_namespace: contoso   # namespace of leases and checkpoints; the host by default
//	    tls_ca_file: ca.pem             # certificates to trust besides the system's
//	    websocket: false                # true: over WebSockets on port 443, for networks that allow only HTTPS
//	    proxy: ${PROXY}                 # with websocket: http://proxy.example.com:3128, or http://user:${PROXY_PASSWORD}@…; that of HTTPS_PROXY by default
//	    prefetch: {events: 3000, bytes: 4MiB}   # of a partition, requested from the broker ahead of the reader
//	    timeout: 30s                    # of a request to the broker
//	    progress_blobs: {container: checkpoints, every: 5s}   # mirror checkpoints into blobs as the Azure SDKs' processors keep them, see docs/moving-back.md;
//	                                    # keys as in leases.blob, but prefix; none by default
//	  kafka:                            # instead of eventhub: a topic of Kafka
//	    brokers: ${KAFKA_BROKERS}       # host:port of one or more brokers, separated by commas
//	    topic: flights
//	    group: sluice                   # the name of checkpoints and dead letters; Sluice joins no consumer group of Kafka
//	    checkpoint_namespace: contoso   # namespace of leases and checkpoints; the cluster's id by default
//	    isolation: read_committed       # or read_uncommitted: also records of open and aborted transactions
//	    progress_group: flights         # publish checkpoints as this consumer group's offsets, for tools that show its lag; none by default
//	    prefetch: {bytes: 4MiB}         # of a partition, fetched from the broker ahead of the reader
//	    max_record_batch: 64MiB         # decompressed; a larger record batch halts its partition
//	    client_id: sluice               # the name of this program in the brokers' logs, metrics and quotas
//	    timeout: 30s                    # of an operation at the brokers
//	    tls: false                      # true, or {ca_file: ca.pem, cert_file: client.pem, key_file: client.key, server_name: kafka.example.com}
//	    sasl:                           # none by default; one of
//	      plain: {user: me, password: …}      # with password: ${KAFKA_PASSWORD} on a line of its own, as below
//	      scram: {user: me, password: …, hash: sha-512}   # or sha-256
//	      oauthbearer: {token_file: /run/token}   # or token_url, client_id, client_secret and scope of an OAuth 2.0 server
//	      entra: {credential: default}  # Entra ID, for the Kafka endpoint of Event Hubs
//	  from: raw                         # the hub or topic that the stage reads which sends to this one: its stamps are believed, see Stages
//	  format:                           # how bodies are encoded, see docs/formats.md; plain JSON by default
//	    compression: auto               # gzip, zstd, or auto: as the property content-encoding says; none by default
//	    max_size: 8MiB                  # of a decoded body
//	    encoding: json                  # avro, protobuf
//	    schema: flights.avsc            # for protobuf a .proto, or a descriptor set
//	    message: pkg.Flight             # for protobuf
//	    import_path: proto              # for a .proto: the directory that it and its imports are below; its own by default
//	    registry:                       # which has the schemas that bodies were written with: one of
//	      confluent: {url: https://…}   # with user and password: ${SCHEMA_REGISTRY_PASSWORD}, or token; tls, as for kafka
//	      azure: {namespace: contoso.servicebus.windows.net, credential: default}   # and tls
//	  claim_check:                      # where the bodies are that are too large for events, see docs/claimcheck.md; none by default
//	    container: bodies               # or its URL, https://contoso.blob.core.windows.net/bodies, as in leases.blob
//	    connection: ${STORAGE_CONNECTION_STRING}   # or credential: default, or a URL with a signature
//	    prefix: ""                      # of the names of blobs
//	    max_size: 64MiB                 # of a body
//	  start: earliest                   # latest, 2026-01-31T08:00:00Z, 24h ago, sequence 42, offset 4096
//	partitions: all                     # required: all, balanced (a fair share), or the number that this process owns
//	lease: {for: 30s, renew: 10s}
//	assign: {every: 1s, burst: 1}       # up to burst partitions are acquired each time; burst: 32 takes 32 partitions at once
//	batch: 4000                         # events of a batch at most
//	prefetch: 4MiB                      # of a partition, read ahead of its batches; also the most of a batch
//	stall_after: 30s                    # a handler or driver that has not returned for so long is reported; the lease's length by default
//	silent_after: 20s                   # a reader is replaced that is silent for so long although the log holds more; two thirds of the lease by default
//	stamp_key: ${STAMP_KEY}             # signs the stamps of messages that are sent, and checks those of messages that are read; none by default
//	old_stamp_key: ${OLD_STAMP_KEY}     # while stamp_key is replaced: the key before it, whose stamps are still believed
//	retry: {attempts: 3, min: 100ms, max: 10s}
//	dead_letters:
//	  store_bodies: true
//	  body_limit: 256KiB
//	  redrive_every: 1s                 # how often an owner looks for redrives that are due
//	  copy_to:                          # none by default: each dead letter is copied at least once, see docs/operations.md, to
//	    servicebus: {connection: ${SERVICEBUS_CONNECTION_STRING}, queue: dead-letters}   # with the keys of the target but key, session, body and only; or
//	    eventhub: {hub: dead-letters}   # likewise; or kafka: {topic: dead-letters}, or
//	    http: {url: ${DEAD_LETTERS_URL}}   # with the keys of the target
//	database: ${DATABASE_URL}           # for insert and statement: sqlite:PATH, or postgres://, mysql:// or mariadb:// and user:${PASSWORD}@host/database,
//	                                    # or sqlserver://user:${PASSWORD}@host?database=name; docs/databases.md says what differs
//	                                    # on Azure with Entra ID: postgres://IDENTITY@SERVER.postgres.database.azure.com/database?sslmode=verify-full&credential=default
//	database:                           # the same, with
//	  url: ${DATABASE_URL}
//	  connections: 8                    # for batches, each in use while a batch is written; in PostgreSQL the number of CPUs by default, but at least 4
//	leases:                             # for insert and statement: leases in Azure Blob Storage; in the database by default
//	  blob: ${BLOB_CONTAINER}           # the keys of blob are below
//	only: {properties.type: [A, B]}     # which events are handled, see Filters and routes; all events by default
//	target:                             # required, or routes: insert, statement, cosmos, eventhub, servicebus, kafka or http
//	  insert:
//	    table: flights                  # or schema.table
//	    create: false                   # true: create the table if it is missing
//	    columns:
//	      sequence_number: sequence     # short for {from: sequence}
//	      delay: {from: body.delay, type: integer, required: true}
//	      gate: {from: 'body.legs[0]["gate no"]', default: none}
//	  statement:
//	    sql: INSERT INTO flights (n, delay) VALUES (:n, :delay) ON CONFLICT (n) DO NOTHING
//	    parameters:
//	      n: sequence
//	      delay: {from: body.delay, type: integer}
//	    audit:                          # none by default: how sluice audit hub finds out which events the statement has executed
//	      query: SELECT n FROM flights WHERE hub_partition = :partition   # one column; also :source, :namespace, :topic, :incarnation
//	  cosmos:                           # writes at least once; more keys for it are below
//	    endpoint: ${COSMOS_ENDPOINT}
//	    key: ${COSMOS_KEY}              # or credential: default, Entra ID
//	    database: db
//	    container: docs
//	    id: body.id                     # or message_id, sequence, …: then the document gets the property id
//	    partition_key: body.key         # or, for a hierarchical key or values outside the body, {tenant: body.tenant, user: key}
//	    operation: upsert               # create, replace
//	    conditional: false              # true: a document records its event, and an older event never replaces a newer one's
//	    mode: bulk                      # point: one request for each document
//	    batch: {documents: 100, bytes: 2MB, wait: 1s}   # of one request in bulk; a hundredth of wait while no request is in flight
//	    concurrency: 8                  # requests in flight to a physical partition at most; 64 for point
//	    timeout: 10s                    # of a request; at most about a third of a lease
//	    cached_versions: 50000          # with conditional: documents whose versions are cached; about 200 bytes each
//	    preferred_regions: West Europe, North Europe   # only for an account with multi-region writes, which conditional refuses
//	  eventhub:                         # another hub: sends at least once
//	    connection: ${NEXT_CONNECTION_STRING}   # or namespace, credential, tls_ca_file, websocket, proxy as for the source; the source's by default
//	    hub: clean
//	    key: body.origin                # the partition key; the event's own by default
//	    batch: {messages: 100, bytes: 1MB, wait: 5ms}   # of one batch at most, as large as the service allows by default; how long a message waits for others
//	    concurrency: 16                 # batches in flight
//	    send_timeout: 60s               # of a batch
//	    only: {body.status: departed}   # the key only, as above
//	    body:                           # a JSON object, mapped like columns; the event's body unchanged by default
//	      airport: body.origin
//	      delay: {from: body.delay, type: integer}
//	    claim_check: {container: bodies, over: 192KiB}   # larger bodies go to blobs, see docs/claimcheck.md; keys as in source.claim_check; none by default
//	  servicebus:                       # a queue or topic: sends at least once
//	    connection: ${SERVICEBUS_CONNECTION_STRING}   # or namespace, credential, tls_ca_file, websocket, proxy
//	    queue: orders                   # or topic
//	    session: body.origin            # or key; body, batch and send_timeout as for eventhub
//	    concurrency: 4                  # batches in flight: sessions and keys are distributed over as many writers
//	    partitioned: false              # true for a partitioned queue or topic, whose batches have one session or key each
//	    subject: body.type              # the subject (label); none by default, also if the value is missing
//	    correlation_id: body.trace      # by default the event's, if there is no body
//	    scheduled: body.due             # when the message is enqueued; at once by default
//	    reply_to: answers               # none by default
//	    ttl: 24h                        # by default as the queue or topic says
//	  kafka:                            # a topic of Kafka: sends at least once
//	    brokers: ${NEXT_BROKERS}        # with tls and sasl as for the source; the source's by default
//	    topic: clean
//	    key: body.origin                # body, batch.wait, concurrency and send_timeout as for eventhub
//	  http:                             # a function or service in any language: posts at least once, see docs/http.md
//	    url: ${TARGET_URL}              # https, or http
//	    format: cloudevents             # json, jsonlines
//	    type: sluice.event              # of the CloudEvents
//	    batch: {events: 500, bytes: 1MB, wait: 10ms}   # of one request, which has events of one partition
//	    concurrency: 4                  # requests in flight for one partition
//	    timeout: 30s                    # of a request
//	    retry_after: 5m                 # how long a Retry-After of the receiver is obeyed at most
//	    headers:                        # sent with each request; none by default
//	      x-functions-key: ${FUNCTION_KEY}
//	    signature:                      # none by default; Standard Webhooks
//	      key: ${WEBHOOK_KEY}
//	      old_key: ${OLD_WEBHOOK_KEY}   # while key is replaced: the key before it
//	    credential: default             # Entra ID, with
//	    scope: api://APP/.default
//	    tls: {ca_file: ca.pem}          # cert_file, key_file, server_name, as for kafka
//	    audit:                          # none by default: how sluice audit hub finds out which events the receiver has, see docs/audit.md
//	      database: ${RECEIVER_DATABASE_URL}   # the receiver's
//	      query: SELECT CAST(id AS INTEGER) FROM received WHERE source = :source
//
// These keys take the place of target:
//
//	routes:                             # the first one that matches takes an event
//	  - only: {type: FlightUpdate}      # the last route may leave it out
//	    target: …                       # as above
//	otherwise: deadletter               # events that no route takes; ignore: they count as done
//
// These keys are only for targets outside a database (cosmos, eventhub,
// servicebus, kafka and http):
//
//	leases:                             # required: where leases, checkpoints and dead letters are stored
//	  sql: ${DATABASE_URL}              # or
//	  blob: ${BLOB_CONTAINER}           # a container's URL with a signature, or
//	    container: sluice               # the container's name or URL, with
//	    connection: ${STORAGE_CONNECTION_STRING}  # or credential: default
//	    prefix: sluice/
//	rate: {events: 1000, cluster: false}   # records a second, of this process or (true) of all processes; or {ru: 50000}
//	backlog: {events: 320000, bytes: 64MiB, age: 10m, fatal: false}
//	checkpoint_every: 5s
//	retry_throttled: 2s                 # not for http: wait before a write is repeated that the target throttled or did not answer, where it states no time
//	order: key                          # writes of one document stay in order; or partition, none. For http, partition posts one batch of a partition after the other,
//	                                    # without rate, backlog, hold_keys, concurrency and batch.wait
//	dead_letters: {hold_keys: false}    # true: events after a dead letter with the same key become dead letters too
//
// These keys are for a rollup: statistics that are kept in memory and published
// to another hub, see below:
//
//	memory:
//	  keep: 24h                         # how far back the hub is read, at every start
//	  late: 12h                         # how long after its group's time an event counts; half of keep by default
//	  group: {airport: body.airport, hour: hour(body.departure)}   # exactly one of them a time: minute(), hour() or day()
//	  figures: {flights: count, delay: sum(body.delay), worst: max(body.delay)}   # also min() and avg()
//
// # Leases beside the database
//
// With leases.blob the processes of a pipeline with insert or statement share the
// partitions by leases in a container, and the database holds checkpoints and dead
// letters only. The guarantee does not rest on the container: every commit checks
// owner, epoch and position in the row of the checkpoint. An owner whose epoch is not
// the row's commits nothing, and acquires its next lease with a higher one. The length
// of a lease must be 15 to 60 seconds, as Azure Blob Storage grants them.
//
// # Stages
//
// A file may hold several pipelines, called stages, which feed each other through
// hubs or topics. Keys at the top of the file then apply to every stage that does not set
// the key itself:
//
//	eventhub:                           # the namespace of the hubs: connection, or namespace with credential; tls_ca_file
//	  connection: ${EVENTHUB_CONNECTION_STRING}
//	kafka:                              # the cluster of the topics: brokers; tls, sasl
//	  brokers: ${KAFKA_BROKERS}
//	partitions: all                     # also lease, assign, batch, prefetch, stall_after, silent_after, retry, stamp_key, old_stamp_key
//	database: ${DATABASE_URL}           # for a target in a database; for others, where leases, checkpoints and dead letters are stored
//	stages:
//	  clean:                            # the stage's name; below it, the keys of a file
//	    source: {eventhub: {hub: flights}}
//	    target: {eventhub: {hub: clean}}
//
// The file lists the stages in the order in which events pass through them. An
// eventhub, servicebus or kafka target stamps each message with the event that it is
// made of, see [sluice.StampOf]. A stage with a target in a database drops
// messages that were sent twice, and so does a rollup. So each event has its
// effect at the end of the chain exactly once.
//
// A stage believes the stamps of the stages in its file that send to its hub, and
// of the stage in another file whose hub source.from names, and no others: a
// forged stamp suppresses the messages of others. With stamp_key, which both
// stages need, it believes only what was signed: with the key of the sending stage
// in the same file, or with its own, if source.from names the sending stage.
// docs/security.md says how to change the key of a running chain.
//
// # Variables and secrets
//
// In all values except sql, ${NAME} is an environment variable and ${NAME:-text}
// is one with a default. $${ is a literal ${. A line break at the end of a
// variable's value is dropped. Messages never show the values of variables. Keys
// and passwords that stand in the file itself are refused. Relative paths are
// relative to the working directory. YAML's anchors, aliases and tags, and a
// second document, are refused.
//
// # Where values come from
//
//   - partition, sequence, offset, enqueued, created, key, message_id,
//     correlation_id, content_type: the event's fields of these names;
//   - body: the whole body, unchanged (types bytes and text) or checked to be JSON
//     (type json);
//   - body.a.b[0]["any key"]: a value in the JSON of the body. The whole body must
//     then be JSON. If an object has a key twice, the last one counts;
//   - properties.NAME: the application property of that name; in Kafka the last
//     header of that name;
//   - type: the type of a CloudEvent, in binary or structured mode.
//
// In Kafka, sequence is the record's offset, and offset the leader epoch. created
// is the sender's time, in a topic that keeps it; there enqueued is the same time.
// A null value (tombstone) makes the body, and every value in it, null. Keys and
// headers that become bytes are the bytes themselves, not base64.
//
// An event whose value is missing or null becomes a dead letter, unless the
// column has a default, or `required: false`, which makes the value NULL. Fields
// that senders may leave out (offset, created, key, message_id, correlation_id,
// content_type, type) are not required unless the file says so.
//
// # Types
//
// A column's type is text by default, except bigint for sequence, timestamp for
// enqueued and created, and bytes for body. Values are never rounded, truncated or guessed. An
// event with a value that does not fit the type exactly becomes a dead letter,
// whose error names the column, the path and the value.
//
//   - text: a string, or a number or boolean as it is written. NUL characters are
//     refused.
//   - integer (32 bits), bigint (64 bits): a whole number, however written:
//     12, 12.0, 1.2e1 or the string "12"; not 12.5.
//   - double: a number, or a string that is one; the nearest double is stored.
//   - numeric: the same with all its digits, at most 1,000. SQLite stores text.
//   - boolean: true or false, or these as strings. SQLite stores 1 and 0.
//   - timestamp: a string in RFC 3339, with its time zone. PostgreSQL stores
//     microseconds; SQLite stores text in UTC.
//   - bytes: base64 for values in JSON, otherwise the bytes themselves.
//   - json: any value, as it is written.
//
// # Filters and routes
//
// The key only has conditions that must all hold for an event to be handled:
// where a value comes from, and one value, a list of values of which one must
// match, or {not: …} around either. Other events count as done. Values are
// compared as text. A value that is missing or null matches no value, and every
// not. An event of which the conditions cannot be decided, because its body is
// not JSON or the value is an array or object, becomes a dead letter; the body
// is read only if the conditions on other fields hold.
//
// Routes to a database write all their tables in one transaction. If each
// inserts into a table of its own, a batch is written table by table in the
// order of the routes, otherwise in the order of the log. Routes to other
// targets may be mixed. docs/routing.md has more.
//
// # Targets
//
// An insert writes a whole batch at once. In PostgreSQL it uses COPY, which
// takes rows in while the next ones are made. With `create: true` a missing
// table is created with the columns and types of the mapping, without
// constraints. An existing table is never altered and must fit the mapping.
//
// A document for Cosmos DB is the event's body, which must be a JSON object,
// with the properties added that the id and the partition key need. YAML's own
// braces ({a: b}) cannot contain variables: write such a mapping on several
// lines.
//
// A statement runs once per event, in the transaction of the batch. In
// PostgreSQL a whole batch takes one round trip. Parameters are written :name.
// Casts (::), strings, quoted names and comments are not searched for them.
//
// # Rollups
//
// A pipeline with the key memory is a rollup. It keeps no checkpoints. At every
// assignment of a partition it reads the hub again, from keep ago on, and
// publishes nothing until it has caught up. Then it publishes the statistics of
// each group whenever they change. A partition that is released is removed from
// memory.
//
// A group's time T is the beginning of its minute, hour or day, in UTC. An event
// counts if it was enqueued between five minutes before T and late after T. A
// message that was sent twice counts once. So the log alone determines the
// statistics of a group. A rollup that reads from time S on knows which groups
// are complete: those with T at least five minutes after S, or all groups if it
// reads from the hub's very first event. It does not publish incomplete groups.
//
// It follows that the statistics stay correct as long as the pipeline is never
// down for longer than keep minus late minus five minutes. The hub's retention
// should be longer than keep. Events that do not count, because of their time or
// because they cannot be mapped, are reported to the observer. They do not
// become dead letters.
//
// A published message is a JSON object. It has the group's values as strings,
// the statistics, and version, a number that grows with each change of the
// group. All statistics but count ignore values that are missing or null, and
// are null if there is no other value. Numbers are exact, with up to 38 digits
// before and after the decimal point; an average is the nearest double. The
// message's key is the first of the group's values, or the one that
// target.eventhub.key names. All events of a group must be in one partition of
// the hub that is read, so that hub's partition key should be one of the group's
// values.
//
// The same statistics may arrive more than once, and older ones late, from an
// owner that has lost its lease. A table that keeps the higher version is correct
// in the end:
//
//	INSERT INTO t (airport, hour, flights, version) VALUES (:airport, :hour, :flights, :version)
//	ON CONFLICT (airport, hour) DO UPDATE SET flights = excluded.flights, version = excluded.version
//	WHERE excluded.version > t.version
//
// Versions start again if the hub that is read is recreated.
package pipeline
