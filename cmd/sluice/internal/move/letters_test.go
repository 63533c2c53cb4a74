package move_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/azurecheckpoints"
	"github.com/sluice-go/sluice/internal/partitionkey"
	"github.com/sluice-go/sluice/sluicetest"
)

// keyOf returns a partition key of a partition.
func keyOf(partition string) string {
	for n := 0; ; n++ {
		if key := fmt.Sprint("key-", n); strconv.Itoa(partitionkey.EventHubsPartition(key, partitions)) == partition {
			return key
		}
	}
}

// TestDeadLetters: each row becomes a dead letter of the event that it means, or is refused.
func TestDeadLetters(t *testing.T) {
	for name, c := range map[string]struct {
		row  azurecheckpoints.DeadLetter
		says string // "": it is imported
		want string // else the counts
	}{
		"by partition":                 {azurecheckpoints.DeadLetter{PartitionOrKey: "1", Sequence: 4, Offset: "400"}, "", "1 imported"},
		"by key":                       {azurecheckpoints.DeadLetter{PartitionOrKey: keyOf("1"), Sequence: 4, Offset: "400"}, "", "1 imported"},
		"without an offset":            {azurecheckpoints.DeadLetter{PartitionOrKey: keyOf("1"), Sequence: 4}, "", "1 imported"},
		"its event has passed":         {azurecheckpoints.DeadLetter{PartitionOrKey: "1", Sequence: 1, Offset: "100"}, "", "1 imported"},
		"its event comes again":        {azurecheckpoints.DeadLetter{PartitionOrKey: "1", Sequence: 7, Offset: "700"}, "", "1 read again"},
		"another offset":               {azurecheckpoints.DeadLetter{PartitionOrKey: "1", Sequence: 4, Offset: "401"}, "it has the offset 401, and that event of partition 1 has 400", ""},
		"another key of the partition": {azurecheckpoints.DeadLetter{PartitionOrKey: keyOf("1") + "x", Sequence: 4, Offset: "400"}, "no partition with a checkpoint has such an event", ""},
		"a key of another partition":   {azurecheckpoints.DeadLetter{PartitionOrKey: keyOf("2"), Sequence: 4, Offset: "400"}, "no partition with a checkpoint has such an event", ""},
		"past the end":                 {azurecheckpoints.DeadLetter{PartitionOrKey: "1", Sequence: 99, Offset: "9900"}, "the newest event of partition 1 is 9", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 0)
				for range 10 {
					w.hub.Append("1", &sluice.Event{Key: keyOf("1"), Body: []byte("x")})
				}
				w.hub.Trim("1", 2)
				w.old.positions, w.old.letters = map[string]int64{"1": 6}, []azurecheckpoints.DeadLetter{c.row}
				report, err := w.mover(true).Run(t.Context())
				all, lerr := w.store.List(t.Context(), group, sluice.DeadLetterFilter{})
				if lerr != nil {
					t.Fatal(lerr)
				}
				if c.says != "" {
					if err == nil || !strings.Contains(err.Error(), c.says) || len(all) > 0 {
						t.Errorf("got %v, and %d dead letters", err, len(all))
					}
					return
				}
				if err != nil || report.Seams[0].Letters.String() != c.want || report.Seams[0].Letters.Read != 1 {
					t.Fatalf("got %+v, %v", report, err)
				}
				imported := c.want == "1 imported"
				if imported != slices.ContainsFunc(all, func(d sluice.DeadLetter) bool {
					return d.Event.Partition == "1" && d.Event.Sequence == c.row.Sequence && !d.HasBody && d.Error != ""
				}) {
					t.Errorf("dead letters %+v", all)
				}
			})
		})
	}
}

// TestDeadLetterOfTwoPartitions: a row that two partitions can mean is refused.
func TestDeadLetterOfTwoPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		name, other := "0", strconv.Itoa(partitionkey.EventHubsPartition("0", partitions))
		if other == name {
			name, other = "1", strconv.Itoa(partitionkey.EventHubsPartition("1", partitions))
		}
		w.hub.Append(name, sluicetest.Bodies("a", "b", "c")...)
		for range 3 {
			w.hub.Append(other, &sluice.Event{Key: name, Body: []byte("x")})
		}
		w.old.positions = map[string]int64{name: 2, other: 2}
		w.old.letters = []azurecheckpoints.DeadLetter{{PartitionOrKey: name, Sequence: 1, Offset: "100"}}
		if _, err := w.mover(true).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "both have such an event") {
			t.Errorf("got %v", err)
		}
	})
}
