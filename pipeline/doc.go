// Package pipeline makes a consumer of a YAML file: the library without
// programming.
//
//	p, err := pipeline.Load("flights.yaml")
//	parts, err := p.Open(ctx)
//	defer parts.Close(ctx)
//	consumer, err := parts.Consumer(ctx, nil)
//	err = consumer.Run(ctx)
//
// # The file
//
// All keys there are; the values are the defaults, where there are any:
//
//	name: flights                       # the file's name without its extension
//	source:
//	  eventhub:
//	    connection: ${EVENTHUB_CONNECTION_STRING}
//	    namespace: contoso.servicebus.windows.net   # instead of connection, with
//	    credential: default             # azidentity.NewDefaultAzureCredential
//	    hub: flights                    # unless the connection string names it
//	    consumer_group: $Default
//	    checkpoint_namespace: contoso   # what checkpoints are kept under: the host
//	    tls_ca_file: ca.pem             # certificates to trust besides the system's
//	  start: earliest                   # latest, 2026-01-31T08:00:00Z, 24h ago, sequence 42, offset 4096
//	partitions: all                     # required: all, balanced (a fair share), or how many this process owns
//	lease: {for: 30s, renew: 10s}
//	batch: 1000
//	retry: {attempts: 3, min: 100ms, max: 10s}
//	dead_letters: {store_bodies: true, body_limit: 256KiB}
//	database: ${DATABASE_URL}           # of insert and statement: sqlite:PATH or postgres://user:${PASSWORD}@host/database
//	target:                             # required: insert, statement, cosmos, eventhub or servicebus
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
//	  cosmos:                           # writes at least once; what belongs to it is below
//	    endpoint: ${COSMOS_ENDPOINT}
//	    key: ${COSMOS_KEY}              # or credential: default, Entra ID
//	    database: db
//	    container: docs
//	    id: body.id                     # or message_id, sequence …: then the document gets the property
//	    partition_key: body.key         # or, hierarchical or from elsewhere, {tenant: body.tenant, user: key}
//	    operation: upsert               # create, replace
//	    conditional: false              # true: documents carry their event, an older one never replaces a newer one's
//	    mode: bulk                      # point: a request for each document
//	  eventhub:                         # the next hub: sends at least once
//	    connection: ${NEXT_CONNECTION_STRING}   # or namespace, credential, tls_ca_file as of the source; the source's by default
//	    hub: clean
//	    key: body.origin                # the partition key; that of the event by default
//	    only: {body.status: departed}   # events with other values are passed over; by default none is
//	    body:                           # a JSON object, mapped as columns are; the event's body as it is by default
//	      airport: body.origin
//	      delay: {from: body.delay, type: integer}
//	  servicebus:                       # a queue or topic: sends at least once
//	    connection: ${SERVICEBUS_CONNECTION_STRING}   # or namespace, credential, tls_ca_file
//	    queue: orders                   # or topic
//	    session: body.origin            # or key; only and body as of eventhub
//
// With a target outside a database alone:
//
//	leases:                             # required: where leases, checkpoints and dead letters are kept
//	  sql: ${DATABASE_URL}              # or else
//	  blob: ${BLOB_CONTAINER}           # a container's URL with a signature, or
//	    container: sluice               # its name or URL, with
//	    connection: ${STORAGE_CONNECTION_STRING}  # or credential: default
//	    prefix: sluice/
//	rate: {events: 1000, cluster: false}   # records a second, of this process or of all together; or {ru: 50000}
//	backlog: {events: 320000, bytes: 64MiB, age: 10m, fatal: false}
//	checkpoint_every: 5s
//	order: key                          # writes of a document stay in order; partition, none
//	dead_letters: {hold_keys: false}    # true: events behind a dead letter of their key become dead letters too
//
// For figures that are kept in memory and published to the next hub, see below:
//
//	memory:
//	  keep: 24h                         # how far back the hub is read, at every start
//	  late: 12h                         # how long after its group's time an event counts; half of keep by default
//	  group: {airport: body.airport, hour: hour(body.departure)}   # one of them a time: minute(), hour() or day()
//	  figures: {flights: count, delay: sum(body.delay), worst: max(body.delay)}   # also min() and avg()
//
// # Stages
//
// A file may hold several pipelines, which feed each other through hubs. At its
// top then stands what holds for all that don't say something else:
//
//	eventhub:                           # where hubs are: connection, or namespace with credential; tls_ca_file
//	  connection: ${EVENTHUB_CONNECTION_STRING}
//	partitions: all                     # also lease, batch, retry
//	database: ${DATABASE_URL}           # of targets in a database; of others, where leases, checkpoints and dead letters are kept
//	stages:
//	  clean:                            # the stage's name, with the keys of a file
//	    source: {eventhub: {hub: flights}}
//	    target: {eventhub: {hub: clean}}
//
// They stand in the order in which events pass them. An eventhub target, or
// servicebus, stamps what it sends with the event that it comes from, see
// [sluice.StampOf]; a target in a database then drops what is sent twice, and so
// does a memory. So
// each event has its effect at the end of the chain exactly once.
//
// In values, except sql, ${NAME} is an environment variable and ${NAME:-text}
// one with a default; $${ is a plain ${. A line break at a variable's end is
// dropped. Variables are never shown in messages, and keys and passwords in the
// file itself are refused. Relative paths are relative to the working
// directory. YAML's anchors, aliases and tags, and a second document, are
// refused.
//
// # Where values come from
//
//   - partition, sequence, offset, enqueued, key, message_id, correlation_id,
//     content_type: the event's fields of these names;
//   - body: the body as it is (bytes, text), or checked to be JSON (json);
//   - body.a.b[0]["any key"]: a value in the JSON of the body. The body must then
//     be JSON as a whole; of a key that an object has twice the last one counts;
//   - properties.NAME: the application property of that name.
//
// A value that is missing or null makes the event a dead letter, unless the
// column has `required: false`, which makes it NULL, or a default. Fields that
// senders may leave out (offset, key, message_id, correlation_id, content_type)
// are not required unless the file says so.
//
// # Types
//
// A column's type is text by default, or what is natural to the field: bigint
// for sequence, timestamp for enqueued, bytes for body. Values are never
// rounded, cut or guessed; one that is not exactly of the type makes the event
// a dead letter whose error names the column, the path and the value.
//
//   - text: a text, or a number or boolean as it is written. Not NUL characters.
//   - integer (32 bits), bigint (64 bits): a whole number, however written:
//     12, 12.0, 1.2e1 or the text "12"; not 12.5.
//   - double: a number, or a text that is one; the nearest double.
//   - numeric: the same, with all its digits, at most 1,000. SQLite keeps it as text.
//   - boolean: true or false, or these as texts. SQLite keeps 1 and 0.
//   - timestamp: a text in RFC 3339, which has a time zone. PostgreSQL keeps
//     microseconds; SQLite keeps text in UTC.
//   - bytes: base64, for values in JSON; else the bytes.
//   - json: any value, as it is written.
//
// # Targets
//
// An insert writes a batch at once (in PostgreSQL by COPY, which takes rows in
// while the next are made). With `create: true`
// a missing table is created with the columns and types of the mapping, without
// constraints; a table that is there is never altered, and must fit the mapping.
//
// Documents for Cosmos DB are the events' bodies, which must be JSON objects,
// with what else the id and the partition key need. In braces of YAML's own,
// variables don't stand: write such mappings in lines.
//
// A statement runs once per event, in the transaction of the batch (in
// PostgreSQL, all of a batch in one round trip). Parameters are written :name,
// and are told from casts (::), strings, quoted names and comments.
//
// # Memory
//
// A pipeline with a memory keeps no checkpoints. On every assignment it reads
// the hub again from keep ago on, and holds back until it has caught up; then it
// publishes the figures of each group whenever they change. A partition that is
// given up leaves memory.
//
// A group's time T is the beginning of its minute, hour or day, in UTC. An event
// counts if the hub has taken it between five minutes before T and late after T,
// and once if it was sent twice. So the log alone says what a group's figures
// are, and a memory that was read from S on knows which groups it holds as a
// whole: those with T at least five minutes after S, or all, if it was read from
// the hub's very first event on. Others are held back. It follows that figures
// stay right as long as the pipeline is never away for longer than keep is longer
// than late, the five minutes included; and that the hub should keep events
// for longer than keep. Events that don't count, for their time or because they
// can't be mapped, are told; they become no dead letters.
//
// What is published is a JSON object: the group's values as texts, the figures,
// and version, a number that grows with each change of the group. All but count
// pass over values that are missing or null, and are null where there are none.
// Numbers are exact, of up to 38 digits before and behind the point; an average
// is the nearest double. The key is the first of the group's values, or that
// which target.eventhub.key names: events of a group must be in one partition of
// the hub that is read, so its key should be one of the group's values too.
//
// The same figures may come more than once, and older ones late, from an owner
// that was cut off. A table that takes the higher version is right in the end:
//
//	INSERT INTO t (airport, hour, flights, version) VALUES (:airport, :hour, :flights, :version)
//	ON CONFLICT (airport, hour) DO UPDATE SET flights = excluded.flights, version = excluded.version
//	WHERE excluded.version > t.version
//
// Versions begin again if the hub that is read is created anew.
package pipeline
