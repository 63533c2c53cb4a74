// Package newfile writes new pipeline files, with comments.
package newfile

import (
	"regexp"
	"slices"
	"strings"
)

// Choice is what a file is for: a word of each of the lists below; Partitions may be a number.
type Choice struct {
	Source, Target, Database, Partitions string
	Address                              string  // of the database, as a file has it; empty: to be set
	Filled                               *Filled // nil: nothing is known of the events
}

// What can be chosen.
var (
	Sources    = []string{"eventhub", "kafka"}
	Targets    = []string{"insert", "statement", "cosmos", "eventhub", "servicebus", "kafka", "http"}
	Databases  = []string{"sqlite", "postgres", "mysql", "sqlserver"}
	Partitions = []string{"all", "balanced"}
)

var sources = map[string]string{
	"eventhub": `  eventhub:
    # The connection string, or namespace: NAME.servicebus.windows.net with credential: default.
    connection: ${EVENTHUB_CONNECTION_STRING}
    hub: ENTITY
    consumer_group: $Default # better one of its own, which no other program reads
`,
	"kafka": `  kafka:
    brokers: ${KAFKA_BROKERS} # host:port, separated by commas
    topic: ENTITY
    group: sluice # the name of checkpoints
    # tls: true
    # sasl: {plain: {user: me, password: …}}, with the password in a variable
`,
}

var targets = map[string]string{
	"insert": `  insert: # adds a row for each event, exactly once
    table: ENTITY
    create: true # the table is created if it is missing
    columns: # a value of the body: body.PATH
      sequence_number: sequence
      hub_partition: partition
      body: {from: body, type: text}
`,
	"statement": `  statement: # runs for each event, exactly once
    sql: INSERT INTO ENTITY (sequence_number, body) VALUES (:sequence_number, :body)
    parameters: # a value of the body: body.PATH
      sequence_number: sequence
      body: {from: body, type: text}
`,
	"cosmos": `  cosmos: # writes a document for each event, at least once
    endpoint: ${COSMOS_ENDPOINT}
    key: ${COSMOS_KEY} # or credential: default
    database: ENTITY
    container: ENTITY
    id: body.id
    partition_key: body.key
`,
	"eventhub": `  eventhub: # sends each event to another hub, at least once
    connection: ${NEXT_CONNECTION_STRING}
    hub: ENTITY-next
`,
	"servicebus": `  servicebus: # sends each event to a queue, at least once
    connection: ${SERVICEBUS_CONNECTION_STRING}
    queue: ENTITY # or topic
`,
	"kafka": `  kafka: # sends each event to another topic, at least once
    brokers: ${NEXT_BROKERS}
    topic: ENTITY-next
`,
	"http": `  http: # posts events in batches, at least once
    url: ${TARGET_URL}
    format: cloudevents # or json, jsonlines
`,
}

// schemes are how the URL of a database begins.
var schemes = map[string]string{
	"postgres":  "postgres://user:password@host/database",
	"mysql":     "mysql://user:password@host/database",
	"sqlserver": "sqlserver://user:password@host?database=name",
}

// Text returns a file for a pipeline with a name.
func Text(name string, c Choice) string {
	entity := Name(name)
	var b strings.Builder
	b.WriteString("# All keys: sluice help pipeline. Check this file: sluice check.\n")
	b.WriteString("# ${NAME} is an environment variable; secrets belong into variables.\n\nsource:\n")
	if c.Filled != nil && c.Filled.Log != nil {
		b.WriteString(c.Filled.Log.source(c.Source))
	} else {
		b.WriteString(strings.ReplaceAll(sources[c.Source], "ENTITY", entity))
	}
	if c.Filled != nil {
		b.WriteString(c.Filled.format())
	}
	b.WriteString("  start: earliest # where a partition without a checkpoint begins: latest, 24h ago, or a time\n\n")
	switch c.Partitions {
	case "balanced":
		b.WriteString("partitions: balanced # each process owns a fair share\n\n")
	case "all":
		b.WriteString("partitions: all # this process owns all of them; balanced: a fair share\n\n")
	default:
		b.WriteString("partitions: " + c.Partitions + " # each process owns so many; all of them, or balanced: a fair share\n\n")
	}
	url, comment := "${DATABASE_URL}", " # "+schemes[c.Database]
	switch {
	case c.Address != "":
		url, comment = c.Address, ""
	case c.Database == "sqlite":
		url, comment = "sqlite:"+entity+".db", " # a file; for several machines a server"
	}
	if c.Target == "insert" || c.Target == "statement" {
		b.WriteString("# Rows, leases, checkpoints and dead letters are in one database.\ndatabase: " + url + comment + "\n")
	} else {
		b.WriteString("# Leases, checkpoints and dead letters.\nleases:\n  sql: " + url + comment + "\n")
	}
	b.WriteString("\n# only: {body.type: wanted} # which events are handled; all by default\n")
	if c.Filled != nil {
		b.WriteString(c.Filled.target())
		return b.String()
	}
	b.WriteString("\ntarget:\n" + strings.ReplaceAll(targets[c.Target], "ENTITY", entity))
	return b.String()
}

var variable = regexp.MustCompile(`\$\{([A-Z_]+)\}`)

// Variables returns the environment variables that a file needs without Filled, in its order.
func Variables(c Choice) (names []string) {
	text := regexp.MustCompile(`(?m)(^| )# .*$`).ReplaceAllString(Text("x", c), "")
	for _, m := range variable.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(names, m[1]) {
			names = append(names, m[1])
		}
	}
	return names
}
