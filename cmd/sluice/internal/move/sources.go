// Package move moves a consumer of a log from another system to a pipeline, or back: it reads where
// the other consumer was, sees whether it still runs, sets the checkpoints and the dead letters,
// and reports what is known of the seam between the two.
package move

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/audit"
	"github.com/sluice-go/sluice/blobstore"
	"github.com/sluice-go/sluice/cmd/sluice/internal/checkpoint"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/health"
	"github.com/sluice-go/sluice/internal/azurecheckpoints"
	"github.com/sluice-go/sluice/kafka"
	"github.com/sluice-go/sluice/pipeline"
)

// Origin names where another consumer keeps its positions. Exactly one of Group, Blob and Database
// is set.
type Origin struct {
	Group        string // consumer group of Kafka
	Blob, Prefix string // container of Azure Blob Storage
	Database     string // URL, or env:NAME
	Table, Topic string // with Database
	DeadLetters  string // with Database: the table of dead letters; empty or none: none
	// Active reads a group of Kafka that still has members: their partitions have owners then.
	// Otherwise it is refused.
	Active bool
}

// Source is where another consumer keeps its positions. It is only read.
type Source interface {
	fmt.Stringer
	// Read returns the positions for the table's group.
	Read(ctx context.Context, t *checkpoint.Table) (azurecheckpoints.Found, error)
	// DeadLetters returns the dead letters of a topic.
	DeadLetters(ctx context.Context, topic string) ([]azurecheckpoints.DeadLetter, error)
	// ShowsOwners reports whether Read sees who reads a partition.
	ShowsOwners() bool
	// None is the error if there are no positions; others are those of other groups or topics.
	None(group sluice.Group, others []string) error
	Close()
}

// Open returns the source. It does not connect. The caller closes it.
func (f *Origin) Open() (Source, error) {
	given := 0
	for _, flag := range []string{f.Group, f.Blob, f.Database} {
		if flag != "" {
			given++
		}
	}
	ofTable := f.Topic != "" || f.Table != azurecheckpoints.PublishedTable
	switch {
	case given != 1:
		return nil, usage.Errorf("name where the checkpoints are: --from-group GROUP, --from-blob CONTAINER-URL or --from-table DATABASE-URL")
	case f.Group != "" && (f.Prefix != "" || ofTable):
		return nil, usage.Errorf("--prefix is for --from-blob, --table and --topic are for --from-table")
	case f.Group != "":
		return groupSource{f.Group, f.Active}, nil
	case f.Blob != "" && ofTable:
		return nil, usage.Errorf("--table and --topic are for --from-table")
	case f.Blob != "":
		client, err := Container("--from-blob", f.Blob)
		return blobSource{client, f.Blob, f.Prefix}, err
	case f.Prefix != "":
		return nil, usage.Errorf("--prefix is for --from-blob")
	}
	return f.rows("--from-table", false)
}

// groupSource is a consumer group of Kafka.
type groupSource struct {
	name   string
	active bool
}

func (s groupSource) String() string { return "consumer group " + s.name + " of Kafka" }

func (groupSource) ShowsOwners() bool { return true }

func (groupSource) DeadLetters(context.Context, string) ([]azurecheckpoints.DeadLetter, error) {
	return nil, nil
}

// kafkaLog is the part of a [kafka.Source] that is needed.
type kafkaLog interface {
	ConsumerGroup(ctx context.Context, name string) (kafka.ConsumerGroup, error)
	CommitOffsets(ctx context.Context, name string, positions map[string]driver.Position) error
}

// kafkaLogOf returns the log of a pipeline that reads a topic of Kafka.
func kafkaLogOf(t *checkpoint.Table) (kafkaLog, bool) {
	source := t.Source
	if shared, is := source.(*health.SharedSource); is {
		source = shared.Source
	}
	log, is := source.(kafkaLog)
	return log, is
}

func (s groupSource) Read(ctx context.Context, t *checkpoint.Table) (azurecheckpoints.Found, error) {
	found := azurecheckpoints.Found{Owners: map[string]string{}}
	log, ok := kafkaLogOf(t)
	if !ok {
		return found, usage.Errorf("--from-group is for topics of Kafka, and the pipeline reads a hub: pass --from-blob or --from-table")
	}
	group, err := log.ConsumerGroup(ctx, s.name)
	if err != nil {
		return found, err
	}
	owner := ""
	if members := group.Members; len(members) > 0 {
		if !s.active {
			return found, fmt.Errorf("consumer group %s is still read by %s: stop the group's consumers and wait a minute, or use --force",
				s.name, some(members))
		}
		owner = some(members)
	}
	for partition, at := range group.Positions {
		found.Checkpoints = append(found.Checkpoints, azurecheckpoints.Checkpoint{
			Partition: partition, Sequence: at.Sequence, Offset: at.Offset, Origin: at.Sequence < 0, Owner: owner,
		})
		if owner != "" {
			found.Owners[partition] = owner
		}
	}
	number := func(c azurecheckpoints.Checkpoint) int { n, _ := strconv.Atoi(c.Partition); return n }
	slices.SortFunc(found.Checkpoints, func(a, b azurecheckpoints.Checkpoint) int { return number(a) - number(b) })
	return found, nil
}

func (s groupSource) None(group sluice.Group, _ []string) error {
	return fmt.Errorf("consumer group %s has no offsets of topic %s: check both names", s.name, group.Topic)
}

func (groupSource) Close() {}

// StorageEnv is the variable with a connection string that Azure's own tools use too.
const StorageEnv = "AZURE_STORAGE_CONNECTION_STRING"

// blobSource is a container of Azure Blob Storage.
type blobSource struct {
	client *container.Client
	name   string
	prefix string
}

// String leaves out a signature.
func (s blobSource) String() string {
	name, _, _ := strings.Cut(s.name, "?")
	return "container " + name
}

func (blobSource) ShowsOwners() bool { return true }

func (blobSource) DeadLetters(context.Context, string) ([]azurecheckpoints.DeadLetter, error) {
	return nil, nil
}

// Container connects to a container that a flag names: a URL, or with the connection string in
// StorageEnv a name.
func Container(flag, name string) (*container.Client, error) {
	cfg := &blobstore.Config{}
	if !strings.Contains(name, "sig=") {
		cfg.ConnectionString = os.Getenv(StorageEnv)
		switch {
		case cfg.ConnectionString != "":
		case !strings.Contains(name, "://"):
			return nil, usage.Errorf("%s: a container's name needs the storage account's connection string in %s; or pass the container's URL", flag, StorageEnv)
		case strings.HasPrefix(name, "https://"):
			credential, err := azidentity.NewDefaultAzureCredential(nil)
			if err != nil {
				return nil, fmt.Errorf("credentials of Entra ID: %w", blobstore.SafeError(err))
			}
			cfg.Credential = credential
		}
	}
	client, err := blobstore.Connect(name, cfg)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return client, nil
}

func (s blobSource) Read(ctx context.Context, t *checkpoint.Table) (azurecheckpoints.Found, error) {
	found, err := azurecheckpoints.Read(ctx, s.client, s.prefix, t.SDKGroup)
	if err != nil {
		return found, fmt.Errorf("read checkpoints of other processors: %w", blobstore.SafeError(err))
	}
	return found, nil
}

func (blobSource) None(group sluice.Group, others []string) error {
	return fmt.Errorf("the container has no checkpoints of %v%s: check the hub and the consumer group of the pipeline, and whether the blobs' names have a prefix (--prefix)", group, othersHint(others))
}

func (blobSource) Close() {}

// some lists a few.
func some(list []string) string {
	const shown = 5
	return strings.Join(list[:min(len(list), shown)], ", ")
}

// othersHint says which others have checkpoints.
func othersHint(others []string) string {
	if len(others) == 0 {
		return ""
	}
	return "; it has checkpoints of " + some(others)
}

// tableSource is a table of a database.
type tableSource struct {
	db           *sql.DB
	words        azurecheckpoints.Words
	table, topic string
	letters      string
}

func (s tableSource) String() string { return "table " + s.table }

func (tableSource) ShowsOwners() bool { return false }

func (s tableSource) DeadLetters(ctx context.Context, topic string) ([]azurecheckpoints.DeadLetter, error) {
	if s.letters == "" || s.letters == NoTable {
		return nil, nil
	}
	list, err := azurecheckpoints.ReadDeadLetters(ctx, s.db, s.letters, cmp.Or(s.topic, topic))
	if err != nil {
		return nil, fmt.Errorf("read dead letters of another consumer: %w; name their table with --dead-letters-table, or pass %s", err, NoTable)
	}
	return list, nil
}

// NoTable as the name of the table of dead letters says that there is none.
const NoTable = "none"

// rows returns the table of the database that a flag names, to be written to or not.
func (f *Origin) rows(flag string, write bool) (Source, error) {
	if strings.EqualFold(f.Table, f.DeadLetters) {
		return nil, usage.Errorf("--table and --dead-letters-table name one table: name two, or pass --dead-letters-table %s", NoTable)
	}
	address := f.Database
	if name, ok := strings.CutPrefix(address, "env:"); ok {
		if address = strings.TrimSpace(os.Getenv(name)); address == "" {
			return nil, usage.Errorf("%s: the environment variable %s is not set", flag, name)
		}
	}
	db, err := pipeline.OpenReader(address)
	if err != nil {
		return nil, usage.Errorf("%s: %v", flag, err)
	}
	if path, ok := strings.CutPrefix(address, "sqlite:"); ok {
		path = strings.TrimPrefix(path, "//")
		if _, err := os.Stat(path); err != nil { // the driver's error does not name the file
			_ = db.Close()
			return nil, fmt.Errorf("%s: open %s: %w: correct the path", flag, path, errors.Unwrap(err))
		}
		if write {
			_ = db.Close()
			if db, err = writableSQLite(path); err != nil {
				return nil, fmt.Errorf("%s: open %s: %w", flag, path, err)
			}
		}
	}
	return tableSource{db, wordsOf(address), f.Table, f.Topic, f.DeadLetters}, nil
}

// writableSQLite opens a file of SQLite that exists.
func writableSQLite(path string) (*sql.DB, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	name := url.URL{Scheme: "file", Path: filepath.ToSlash(absolute), RawQuery: "mode=rw&_pragma=busy_timeout(10000)"}
	return sql.Open("sqlite", name.String())
}

// wordsOf are the words of the database at an address.
func wordsOf(address string) azurecheckpoints.Words {
	quoted := func(left, right string) func(string) string {
		return func(name string) string { return left + strings.ReplaceAll(name, right, right+right) + right }
	}
	switch scheme, _, _ := strings.Cut(address, ":"); scheme {
	case "sqlserver":
		return azurecheckpoints.Words{Placeholder: audit.SQLServer().Placeholder, Quote: quoted("[", "]")}
	case "mysql", "mariadb":
		return azurecheckpoints.Words{Placeholder: audit.MySQL().Placeholder, Quote: quoted("`", "`")}
	case "sqlite":
		return azurecheckpoints.Words{Placeholder: audit.SQLite().Placeholder, Quote: quoted(`"`, `"`)}
	}
	return azurecheckpoints.Words{Placeholder: audit.PostgreSQL().Placeholder, Quote: quoted(`"`, `"`)}
}

func (s tableSource) Read(ctx context.Context, t *checkpoint.Table) (azurecheckpoints.Found, error) {
	found, err := azurecheckpoints.ReadTable(ctx, s.db, s.table, cmp.Or(s.topic, t.Group.Topic))
	if err != nil {
		return found, fmt.Errorf("read checkpoints of another consumer: %w", err)
	}
	return found, nil
}

func (s tableSource) None(group sluice.Group, others []string) error {
	return fmt.Errorf("the table %s has no checkpoints of %s%s: check the hub of the pipeline, or name the topic of the rows with --topic", s.table, cmp.Or(s.topic, group.Topic), othersHint(others))
}

func (s tableSource) Close() { _ = s.db.Close() }
