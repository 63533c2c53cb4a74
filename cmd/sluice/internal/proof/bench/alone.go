//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// loader writes rows that are in memory in the form that the database's driver sends: what the
// database can take, from a client that does nothing else.
type loader interface {
	// load writes the n rows of a partition from a sequence number on, in one transaction.
	load(ctx context.Context, first, n int) error
	close()
}

// loaders has for each kind of database the function that opens a loader for each partition.
var loaders = map[string]func(ctx context.Context, j *job) ([]loader, error){
	"postgres":  ofEach(newPostgresLoader),
	"mariadb":   ofEach(newMariaDBLoader),
	"sqlserver": ofEach(newSQLServerLoader),
	"sqlite":    openSQLiteLoaders,
}

// ofEach opens a loader of its own for each partition.
func ofEach(open func(ctx context.Context, j *job, partition int) (loader, error)) func(context.Context, *job) ([]loader, error) {
	return func(ctx context.Context, j *job) (list []loader, err error) {
		for p := range j.Partitions {
			l, err := open(ctx, j, p)
			if err != nil {
				return nil, err
			}
			list = append(list, l)
		}
		return list, nil
	}
}

// runAlone loads the rows that the other contenders make of their events: as many in a transaction,
// over one connection for each partition. There are no events, no positions, and nothing is mapped.
func runAlone(ctx context.Context, j *job, m *meter) error {
	scheme, _, _ := strings.Cut(j.Database, ":")
	open := loaders[scheme]
	if open == nil {
		return fmt.Errorf("database %s: no way to load rows is known", scheme)
	}
	list, err := open(ctx, j)
	if err != nil {
		return err
	}
	if err := m.start(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var loading sync.WaitGroup
	for p, l := range list {
		loading.Go(func() {
			for first := 0; first < j.Events; first += j.Batch {
				if err := l.load(ctx, first, min(j.Batch, j.Events-first)); err != nil {
					cancel(fmt.Errorf("partition %d: %w", p, err))
					return
				}
				m.committed()
			}
		})
	}
	loading.Wait()
	defer func() {
		for _, l := range list {
			l.close()
		}
	}()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return m.stop()
}

// rowsOf makes the rows of a batch, as the contenders make them of their events.
func rowsOf(j *job, partition int) ([][]any, error) {
	rows := make([][]any, j.Batch)
	for i := range rows {
		var r record
		if err := json.Unmarshal(reading(i, j.Body, time.Now()), &r); err != nil {
			return nil, err
		}
		rows[i] = []any{strconv.Itoa(partition), int64(i), r.Device, r.Time, r.Delay, r.Distance, r.Payload}
	}
	return rows, nil
}

// Indices among [columns].
const (
	numberColumn = 1
	timeColumn   = 3
)
