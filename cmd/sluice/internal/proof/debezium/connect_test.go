//go:build unix

package debezium

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/internal/proof/testserver"
)

// connect is a worker of Kafka Connect with Debezium's connector, which can be killed and started
// again: its offsets are in a file.
type connect struct {
	*process
	args []string
}

// newConnect writes the configuration of a connector that reads a table of the source.
func newConnect(t *testing.T, brokers []string, source, table string) *connect {
	t.Helper()
	root, err := testserver.Repository()
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(source)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	dir := t.TempDir()
	write := func(name string, lines ...string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	worker := write("worker.properties",
		"bootstrap.servers="+strings.Join(brokers, ","), "listeners=http://127.0.0.1:0",
		"key.converter=org.apache.kafka.connect.json.JsonConverter", "value.converter=org.apache.kafka.connect.json.JsonConverter",
		"offset.storage.file.filename="+filepath.Join(dir, "offsets"), "offset.flush.interval.ms=500", "topic.creation.enable=true", "plugin.discovery=service_load")
	connector := write("connector.properties",
		"name=source", "connector.class=io.debezium.connector.postgresql.PostgresConnector", "tasks.max=1", "plugin.name=pgoutput",
		"database.hostname="+u.Hostname(), "database.port="+u.Port(), "database.user="+u.User.Username(), "database.password="+password,
		"database.dbname="+strings.Trim(u.Path, "/"), "topic.prefix=shop", "table.include.list=public."+table, "publication.autocreate.mode=filtered",
		"skipped.operations=none", "poll.interval.ms=50", "topic.creation.default.partitions=1", "topic.creation.default.replication.factor=1")
	return &connect{args: []string{"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.log.io.debezium.connector.postgresql.TypeRegistry=error",
		"-cp", filepath.Join(root, ".dev/debezium/libs", "*"), "org.apache.kafka.connect.cli.ConnectStandalone", worker, connector}}
}

func (c *connect) start(t *testing.T) {
	t.Helper()
	c.process = start(t, "Debezium", nil, "java", c.args...)
}
