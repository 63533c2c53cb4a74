//go:build unix

package main

import (
	"context"
	"database/sql"
	"fmt"
	"math/bits"
)

// tally counts the ids of events exactly, with a bit for each.
type tally struct {
	Rows       int64 `json:"rows"`
	Distinct   int64 `json:"distinct"`
	Missing    int64 `json:"missing"`
	Duplicated int64 `json:"duplicated"` // rows too many
	Foreign    int64 `json:"foreign"`    // rows with an id that was not published

	partitions [][]uint64
	published  []int64
}

// newTally expects the numbers from 0 up to what was published of each partition.
func newTally(published []int64) *tally {
	t := &tally{published: published}
	for _, n := range published {
		t.partitions = append(t.partitions, make([]uint64, (n+63)/64))
	}
	return t
}

func (t *tally) add(partition int, number int64) {
	t.Rows++
	if partition < 0 || partition >= len(t.published) || number < 0 || number >= t.published[partition] {
		t.Foreign++
		return
	}
	word, bit := &t.partitions[partition][number/64], uint64(1)<<(number%64)
	if *word&bit != 0 {
		t.Duplicated++
	}
	*word |= bit
}

func (t *tally) finish() {
	t.Distinct, t.Missing = 0, 0
	for p, words := range t.partitions {
		var set int64
		for _, w := range words {
			set += int64(bits.OnesCount64(w))
		}
		t.Distinct += set
		t.Missing += t.published[p] - set
	}
}

func (t *tally) exact() bool {
	return t.Missing == 0 && t.Duplicated == 0 && t.Foreign == 0 && t.Rows == t.Distinct
}

func (t *tally) String() string {
	return fmt.Sprintf("%d rows, %d distinct, %d missing, %d duplicated, %d foreign", t.Rows, t.Distinct, t.Missing, t.Duplicated, t.Foreign)
}

// count reads the ids of all rows.
func count(ctx context.Context, db *sql.DB, published []int64) (*tally, error) {
	t := newTally(published)
	rows, err := db.QueryContext(ctx, "SELECT hub_partition, number FROM soaked")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var partition int
		var number int64
		if err := rows.Scan(&partition, &number); err != nil {
			return nil, err
		}
		t.add(partition, number)
	}
	t.finish()
	return t, rows.Err()
}
