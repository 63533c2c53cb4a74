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
// A file names a source, a target, and where leases, checkpoints and dead letters are
// stored:
//
//	source:
//	  eventhub:
//	    connection: ${EVENTHUB_CONNECTION_STRING}
//	    hub: flights
//	partitions: balanced
//	database: ${DATABASE_URL}
//	target:
//	  insert:
//	    table: flights
//	    columns: {origin: body.origin, delay: {from: body.delay, type: integer}}
//
// All keys, with types, defaults and examples, are in docs/reference/pipeline.md, in
// `sluice help pipeline`, and in [Reference], from which both are made. The following
// says how they work together.
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
//	partitions: all                     # also lease, assign, batch, prefetch, memory_limit, stall_after, silent_after, retry, stamp_key, old_stamp_key
//	database: ${DATABASE_URL}           # for a target in a database; for others, where leases, checkpoints and dead letters are stored
//	stages:
//	  clean:                            # the stage's name; below it, the keys of a file
//	    source: {eventhub: {hub: flights}}
//	    target: {eventhub: {hub: clean}}
//
// The file lists the stages in the order in which events pass through them. An
// eventhub, servicebus or kafka target stamps each message with the event that it is
// made of, see [stamp.Of]. A stage with a target in a database drops
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
//   - topic: the name of the topic or hub that the pipeline reads;
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
