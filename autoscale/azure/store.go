package azure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/internal/azerror"
)

// Store is an [autoscale.Store] in an Azure table. It is safe for concurrent use, by
// several processes too. Open it with [OpenStore]; it needs no closing.
type Store struct {
	name  string
	table *aztables.Client
	log   *slog.Logger

	mu       sync.Mutex
	reported map[string]bool // rows that are not understood
}

var _ autoscale.Store = (*Store)(nil)

// OpenStore opens the table, and creates it if it is missing.
func OpenStore(ctx context.Context, cfg *Config) (*Store, error) {
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("state in a table: %w", err)
	}
	service, err := c.tables()
	if err != nil {
		return nil, fmt.Errorf("state in a table: %w", err)
	}
	s := &Store{name: c.Table, table: service.NewClient(c.Table), log: c.Log, reported: map[string]bool{}}
	if _, err := s.table.CreateTable(ctx, nil); err != nil && !azerror.HasStatus(err, http.StatusConflict) {
		return nil, s.fail("create", err)
	}
	return s, nil
}

func (s *Store) fail(what string, err error) error {
	return fmt.Errorf("%s: table %s: %w", what, s.name, azerror.Shorten(err))
}

// read reads one row; it returns nil for a missing one.
func (s *Store) read(ctx context.Context, resource, rowKey string) (*aztables.EDMEntity, azcore.ETag, error) {
	r, err := s.table.GetEntity(ctx, key(resource), rowKey, nil)
	if azerror.HasStatus(err, http.StatusNotFound) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	e := &aztables.EDMEntity{}
	if err := json.Unmarshal(r.Value, e); err != nil {
		return nil, "", err
	}
	return e, r.ETag, nil
}

// list calls fn with the rows of a resource that match a filter, at most most of them
// (0: all).
func (s *Store) list(ctx context.Context, resource, filter string, most int, fn func(*aztables.EDMEntity) error) error {
	return s.listPartition(ctx, key(resource), filter, most, fn)
}

// listPartition is list for a partition by its key.
func (s *Store) listPartition(ctx context.Context, partition, filter string, most int, fn func(*aztables.EDMEntity) error) error {
	filter = "PartitionKey eq '" + strings.ReplaceAll(partition, "'", "''") + "' and " + filter
	n := 0
	for pages := s.table.NewListEntitiesPager(&aztables.ListEntitiesOptions{Filter: &filter}); pages.More(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, raw := range page.Entities {
			e := &aztables.EDMEntity{}
			if err := json.Unmarshal(raw, e); err != nil {
				return err
			}
			if err := fn(e); err != nil {
				return err
			}
			if n++; n == most {
				return nil
			}
		}
	}
	return nil
}

// Load implements [autoscale.Store]. It reads the row ~memory before the windows: if
// another process saves in between, the version is old, and Save returns a conflict.
func (s *Store) Load(ctx context.Context, resource string) (*autoscale.ResourceState, error) {
	m := &autoscale.ResourceState{Resource: resource}
	e, _, err := s.read(ctx, resource, memoryRow)
	if err != nil {
		return nil, s.fail("load state of "+resource, err)
	}
	if e == nil {
		if err := s.loadPublished(ctx, m); err != nil {
			return nil, s.fail("load the published autoscaler's state of "+resource, err)
		}
		return m, nil
	}
	if err := get(e, "Memory", m); err != nil {
		return nil, s.fail("load state of "+resource, err)
	}
	m.Resource, m.Version, m.Windows = resource, strconv.FormatInt(number(e, "Version"), 10), map[string]*autoscale.Window{}
	err = s.list(ctx, resource, "RowKey lt '~'", 0, func(e *aztables.EDMEntity) error {
		metric, ours := e.Properties["Metric"].(string)
		_, others := e.Properties["SerializedState"].(string)
		w := &autoscale.Window{}
		switch err := get(e, "History", w); {
		case !ours && others:
			s.report(e, errPublishedRuns)
		case !ours:
			s.report(e, errForeign)
		case err != nil:
			s.report(e, err) // the window fills again; until then there is too little to decide on
		default:
			m.Windows[metric] = w
		}
		return nil
	})
	if err != nil {
		return nil, s.fail("load windows of "+resource, err)
	}
	return m, nil
}

// report logs once that a row is not understood.
func (s *Store) report(e *aztables.EDMEntity, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if row := e.PartitionKey + "/" + e.RowKey; !s.reported[row] && len(s.reported) < maxReported {
		s.reported[row] = true
		s.log.Warn("row of the table is left out", "table", s.name, "partition_key", e.PartitionKey, "row_key", e.RowKey, "error", err)
	}
}

// maxReported bounds the rows that are remembered as reported.
const maxReported = 1000

// errForeign: another program's row is in the partition.
var errForeign = errors.New("it is of another program: delete it, or give the state a table of its own")

// Save implements [autoscale.Store], in one transaction.
func (s *Store) Save(ctx context.Context, m *autoscale.ResourceState, records ...autoscale.Record) error {
	fail := func(err error) error { return s.fail("save state of "+m.Resource, err) }
	var expected int64 // 0: the row must not exist
	if m.Version != "" {
		var err error
		if expected, err = strconv.ParseInt(m.Version, 10, 64); err != nil {
			return fail(autoscale.ErrConflict)
		}
	}
	old, etag, err := s.read(ctx, m.Resource, memoryRow)
	if err != nil {
		return fail(err)
	}
	if old == nil && expected != 0 || old != nil && number(old, "Version") != expected {
		return fail(autoscale.ErrConflict)
	}
	if old == nil {
		if err := s.publishedStopped(ctx, m.Resource); err != nil {
			return fail(err)
		}
	}
	var t transaction
	var before []string
	if old != nil {
		if err := get(old, "Metrics", &before); err != nil {
			return fail(err)
		}
	}
	if err := t.memory(m, expected+1, old != nil, etag); err != nil {
		return fail(err)
	}
	for _, metric := range before {
		if m.Windows[metric] == nil {
			t.add(aztables.TransactionTypeDelete, row(m.Resource, key(metric)), nil)
		}
	}
	for metric, w := range m.Windows {
		if err := t.window(m, metric, w); err != nil {
			return fail(fmt.Errorf("window of %s: %w", metric, err))
		}
	}
	for _, r := range records {
		if err := t.record(m.Resource, r); err != nil {
			return fail(fmt.Errorf("record %d: %w", r.Sequence, err))
		}
	}
	if err := t.commit(ctx, s.table); err != nil {
		return fail(err)
	}
	m.Version = strconv.FormatInt(expected+1, 10)
	return nil
}

// Outcome implements [autoscale.Store].
func (s *Store) Outcome(ctx context.Context, resource string) (*autoscale.Outcome, error) {
	e, _, err := s.read(ctx, resource, outcomeRow)
	if err != nil || e == nil {
		if err != nil {
			err = s.fail("load outcome of "+resource, err)
		}
		return nil, err
	}
	o := &autoscale.Outcome{}
	if err := get(e, "Outcome", o); err != nil {
		return nil, s.fail("load outcome of "+resource, err)
	}
	return o, nil
}

// SetOutcome implements [autoscale.Store].
func (s *Store) SetOutcome(ctx context.Context, resource string, o autoscale.Outcome) error {
	err := unlessOutpaced(ctx, func() error { return s.trySetOutcome(ctx, resource, o) })
	if err != nil {
		return s.fail("save outcome of "+resource, err)
	}
	return nil
}

func (s *Store) trySetOutcome(ctx context.Context, resource string, o autoscale.Outcome) error {
	old, etag, err := s.read(ctx, resource, outcomeRow)
	if err != nil || old != nil && number(old, "Number") >= o.Number {
		return err
	}
	e := row(resource, outcomeRow)
	e.Properties["Number"] = aztables.EDMInt64(o.Number)
	if err := put(e, "Outcome", o); err != nil {
		return err
	}
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if old == nil {
		_, err = s.table.AddEntity(ctx, text, nil)
	} else {
		_, err = s.table.UpdateEntity(ctx, text, &aztables.UpdateEntityOptions{IfMatch: &etag, UpdateMode: aztables.UpdateModeReplace})
	}
	return err
}

// records returns the filter of records not before from, and before before. A zero
// time is no bound.
func records(from, before time.Time) string {
	filter := "RowKey ge '" + recordPrefix + "' and RowKey lt '" + afterRecords + "'"
	if !from.IsZero() {
		filter += fmt.Sprintf(" and At ge %dL", from.UnixNano())
	}
	if !before.IsZero() {
		filter += fmt.Sprintf(" and At lt %dL", before.UnixNano())
	}
	return filter
}

// Records implements [autoscale.Store].
func (s *Store) Records(ctx context.Context, resource string, since time.Time, limit int) ([]autoscale.Record, error) {
	var list []autoscale.Record
	err := s.list(ctx, resource, records(since, time.Time{}), limit, func(e *aztables.EDMEntity) error {
		list = append(list, autoscale.Record{})
		return get(e, "Record", &list[len(list)-1])
	})
	if err != nil {
		return nil, s.fail("read log of "+resource, err)
	}
	slices.Reverse(list)
	return list, nil
}

// DeleteRecords implements [autoscale.Store].
func (s *Store) DeleteRecords(ctx context.Context, resource string, before time.Time) error {
	var t transaction
	err := s.list(ctx, resource, records(time.Time{}, before), 0, func(e *aztables.EDMEntity) error {
		t.add(aztables.TransactionTypeDelete, row(resource, e.RowKey), nil)
		if len(t.actions) < maxTransaction {
			return nil
		}
		return t.commit(ctx, s.table)
	})
	if err == nil {
		err = t.commit(ctx, s.table)
	}
	// Another process may delete the same rows.
	if err != nil && !errors.Is(err, errRowGone) {
		return s.fail("delete records of "+resource, err)
	}
	return nil
}
