package pipeline

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/outbox"
)

// Limits of an outbox.
const (
	maxOutboxPartitions = 256 // the limit of package outbox
	maxOutboxGroups     = 100
	maxKeep             = 10 * 365 * 24 * time.Hour
)

// outboxTable is an outbox in the file.
type outboxTable struct {
	database sqlDatabase
	config   outbox.Config
	creates  bool
	deletes  bool
	keep     time.Duration // with deletes
	groups   []string      // with deletes: the other groups that read the outbox
}

// readSourceOutbox reads source.outbox.
func (r *reader) readSourceOutbox(n strictyaml.Node) {
	r.places.source = n.Place()
	t := &outboxTable{}
	ok := n.Object(strictyaml.Keys{
		"database": func(n strictyaml.Node) { t.database, _ = readSQLDatabase(n) },
		"table": func(n strictyaml.Node) {
			if n.Text(&t.config.Table) {
				if _, err := outbox.Schema(outbox.SQLite, &t.config); err != nil {
					n.Fail("%w", err)
				}
			}
		},
		"partitions":           func(n strictyaml.Node) { n.Int(&t.config.Partitions, 1, maxOutboxPartitions) },
		"create":               func(n strictyaml.Node) { n.Bool(&t.creates) },
		"group":                func(n strictyaml.Node) { n.Text(&t.config.ConsumerGroup) },
		"checkpoint_namespace": func(n strictyaml.Node) { n.Text(&t.config.Namespace) },
		"timeout":              func(n strictyaml.Node) { n.DurationIn(&t.config.Timeout, minTimeout, maxTimeout) },
		"delete": func(n strictyaml.Node) {
			r.given.outboxDelete, t.deletes = &n, true
			n.Object(strictyaml.Keys{
				"keep":         func(n strictyaml.Node) { n.DurationIn(&t.keep, time.Second, maxKeep) },
				"other_groups": func(n strictyaml.Node) { n.Texts(maxOutboxGroups, &t.groups) },
			})
		},
	}, "database")
	if ok && t.database != nil {
		r.setSource(t)
	}
}

func (t *outboxTable) system() System { return Outbox }

func (t *outboxTable) group() sluice.Group {
	return sluice.Group{
		Namespace: t.config.Namespace, Topic: cmp.Or(t.config.Table, outbox.DefaultTable),
		Name: cmp.Or(t.config.ConsumerGroup, outbox.DefaultGroup),
	}
}

func (t *outboxTable) address() address {
	return address{Outbox, []string{t.database.address()}, t.group().Topic}
}

// outboxSource is an outbox with its connections.
type outboxSource struct {
	*outbox.Source
	db *sql.DB
}

func (s *outboxSource) Close(ctx context.Context) error {
	return errors.Join(s.Source.Close(ctx), s.db.Close())
}

// open implements [log].
func (t *outboxTable) open(consumerGroup string) (Source, error) {
	s, err := t.source(consumerGroup)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (t *outboxTable) source(consumerGroup string) (*outboxSource, error) {
	db, dialect, err := t.database.outbox()
	if err != nil {
		return nil, err
	}
	config := t.config
	config.ConsumerGroup = cmp.Or(consumerGroup, config.ConsumerGroup)
	source, err := outbox.New(db, dialect, &config)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &outboxSource{source, db}, nil
}

// create creates the tables if the file says so.
func (t *outboxTable) create(ctx context.Context) error {
	if !t.creates {
		return nil
	}
	source, err := t.source("")
	if err != nil {
		return err
	}
	return errors.Join(source.Create(ctx), source.Close(ctx))
}

// deleteAfter has the source delete what is done in all groups, if the file says so. The
// checkpoints of the other groups are where those of the pipeline are.
func (t *outboxTable) deleteAfter(parts *Parts) {
	source, is := parts.log.(*outboxSource)
	if !t.deletes || !is {
		return
	}
	readers := []outbox.Reader{{Group: parts.Group.Name, Checkpoints: parts.Checkpoints}}
	for _, name := range t.groups {
		readers = append(readers, outbox.Reader{Group: name, Checkpoints: parts.Checkpoints})
	}
	source.DeleteAfter(t.keep, readers...)
}

// setConnections implements [log].
func (t *outboxTable) setConnections(c *Connections) { c.Outbox = t.database.address() }
