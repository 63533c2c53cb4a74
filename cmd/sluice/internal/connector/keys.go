package connector

import (
	"slices"
	"strings"
)

// needlessKeys are keys without a counterpart that change no row, and why there is none. A key that
// ends with a dot stands for all that begin with it.
var needlessKeys = map[string]string{
	"tasks.max":                                       "start as many processes as you like: partitions: balanced shares the partitions",
	"tasks.max.enforce":                               "there are no tasks",
	"header.converter":                                "headers are properties as they are",
	"header.converter.":                               "headers are properties as they are",
	"config.action.reload":                            "a pipeline reads its variables at its start",
	"errors.retry.timeout":                            "an outage is retried until it ends",
	"errors.retry.delay.max.ms":                       "retry.max has the longest wait",
	"errors.log.enable":                               "failures are always logged, and a dead letter keeps its error",
	"errors.log.include.messages":                     "a dead letter keeps the record",
	"max.retries":                                     "an outage is retried until it ends; retry.attempts is for single events",
	"retry.backoff.ms":                                "waits grow up to retry.max",
	"flush.max.retries":                               "an outage is retried until it ends",
	"flush.retry.delay.ms":                            "waits grow up to retry.max",
	"connection.attempts":                             "an outage is retried until it ends",
	"connection.backoff.ms":                           "waits grow up to retry.max",
	"connection.restart.on.errors":                    "lost connections are always opened again",
	"connection.provider":                             "connections are Sluice's own",
	"hibernate.":                                      "there is no Hibernate",
	"connection.pool.":                                "database.connections has the number of connections",
	"dialect.name":                                    "the database's URL says which it is",
	"use.reduction.buffer":                            "of several changes of a key in a batch the last one counts",
	"mssql.use.merge.holdlock":                        "writes by key are safe against concurrent writers",
	"trim.sensitive.log":                              "logs never have values",
	"table.types":                                     "the table's kind is examined at the start",
	"dialect.postgres.postgis.schema":                 "PostGIS needs no setting",
	"dialect.postgres.unnest.insert":                  "batches are always written at once",
	"consumer.override.max.poll.":                     "batch has the largest number of events",
	"consumer.override.fetch.":                        "source.kafka.prefetch has the limit",
	"consumer.override.session.timeout.ms":            "lease.for has the time",
	"consumer.override.heartbeat.":                    "lease.renew has the time",
	"consumer.override.partition.assignment.strategy": "partitions says how many a process owns",
	"consumer.override.max.partition.fetch.bytes":     "source.kafka.prefetch has the limit",
	"consumer.override.group.id":                      "its offsets can be imported, see below",
	"consumer.override.enable.auto.commit":            "checkpoints are in the database",
	"producer.override.":                              "nothing is produced but copies of dead letters",
	"admin.override.":                                 "no topics are created",
	"confluent.topic.":                                "there is no license",
	"confluent.license":                               "there is no license",
	"key.converter.":                                  "keys are not decoded",
	"key.converter":                                   "keys are not decoded",
	"value.converter.schemas.enable":                  "the encoding says whether there are schemas",
	"value.converter.schemas.cache.size":              "schemas are kept in memory",
	"value.converter.auto.register.schemas":           "only a producer registers schemas",
	"value.converter.use.latest.version":              "each body names its schema",
	"value.converter.enhanced.avro.schema.support":    "enums and packages need no setting",
	"value.converter.connect.meta.data":               "metadata is ignored",
	"value.converter.value.subject.name.strategy":     "a body names its schema by id",
	"value.converter.key.subject.name.strategy":       "a body names its schema by id",
	"value.converter.reference.subject.name.strategy": "a body names its schema by id",
	"errors.deadletterqueue.topic.replication.factor": "the topic must exist",
	"errors.deadletterqueue.context.headers.enable":   "a copy always has its error and its position as properties",
}

func needless(key string) string {
	if why := needlessKeys[key]; why != "" {
		return why
	}
	at := ""
	for prefix := range needlessKeys {
		if strings.HasSuffix(prefix, ".") && strings.HasPrefix(key, prefix) && len(prefix) > len(at) {
			at = prefix
		}
	}
	return needlessKeys[at]
}

// among reports whether a value is one of several, in upper or lower case.
func among(value string, words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.EqualFold(w, value) })
}
