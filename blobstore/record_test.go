package blobstore

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// asSent is metadata as the SDK hands it out: names as HTTP writes them.
func asSent(m metadata) map[string]*string {
	out := make(map[string]*string)
	for name, value := range m {
		out[strings.ToUpper(name[:1])+name[1:]] = value
	}
	return out
}

func TestRecordRoundTrip(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, r := range []record{
		{},
		{lease: leaseRecord{owner: "a ü/%\x00", epoch: 3, seconds: 30, renewed: now}},
		{lease: leaseRecord{owner: "a", epoch: 3}, checkpoint: &driver.Checkpoint{
			Owner: "b", Epoch: math.MaxInt64, Incarnation: "2026-01-02T03:04:05.678Z", Position: driver.Position{Sequence: math.MaxInt64 - 5, Offset: "12 34"},
			Claims: 2, Updated: now, Attempt: driver.AttemptRecord{Sequence: math.MaxInt64 - 4, DeadLetter: 7, Attempts: 2, Unreturned: 1, Error: "no ü/%\x00"}, Done: []driver.SequenceRange{{First: math.MaxInt64 - 3, Last: math.MaxInt64}},
		}},
		{checkpoint: &driver.Checkpoint{Epoch: 1, Position: driver.Unset, Updated: now}},
	} {
		got, err := decode(asSent(r.encode()))
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%+v became %+v, %v", r, got, err)
		}
	}
}

// However much there is to say, it stays within what a blob takes.
func TestRecordSize(t *testing.T) {
	long := strings.Repeat("x", maxText)
	p := &driver.Checkpoint{Owner: long, Epoch: math.MaxInt64, Incarnation: long, Position: driver.Position{Offset: long + "x"}, Claims: math.MaxInt, Updated: time.Now()}
	p.Attempt = driver.AttemptRecord{Sequence: math.MaxInt64, DeadLetter: math.MaxInt64, Attempts: math.MaxInt, Unreturned: math.MaxInt, Error: strings.Repeat("ü", maxText)}
	for i := range int64(10_000) {
		p.Done = append(p.Done, driver.SequenceRange{First: (i + 1) << 49, Last: (i+1)<<49 + 1<<48})
	}
	r := record{lease: leaseRecord{owner: long, epoch: math.MaxInt64, seconds: 60, renewed: time.Now()}, checkpoint: p}
	m := r.encode()
	if m.size() > 8<<10 {
		t.Errorf("%d bytes", m.size())
	}
	got, err := decode(asSent(m))
	if err != nil || len(got.checkpoint.Done) < 250 || got.checkpoint.Position.Offset != "" || got.checkpoint.Owner != long || got.checkpoint.Attempt.Unreturned != math.MaxInt {
		t.Errorf("%d ranges, %v", len(got.checkpoint.Done), err)
	}
	t.Logf("%d bytes, %d ranges", m.size(), len(got.checkpoint.Done))
}

func TestForeignMetadata(t *testing.T) {
	for name, value := range map[string]string{
		"leaseepoch": "x", "epoch": "1e3", "sequencenumber": "9223372036854775808", "done": "AA", "owner": "%zz", "updated": "yesterday",
	} {
		one := "1"
		m := map[string]*string{"epoch": &one, name: &value}
		if _, err := decode(m); err == nil {
			t.Errorf("%s %q was read", name, value)
		}
	}
	if r, err := decode(map[string]*string{"Hdi_isfolder": nil}); err != nil || r.checkpoint != nil || r.lease.epoch != 0 {
		t.Errorf("metadata of something else: %+v, %v", r, err)
	}
}

func TestLetterIDs(t *testing.T) {
	last := int64(0)
	for _, sequence := range []int64{0, 1, 2, 1 << 20, 1<<35 - 1} {
		for _, partition := range []string{"0", "1", "7", "2046"} {
			id := deadLetterID(partition, sequence, "2026-01-02T03:04:05Z")
			if id <= last {
				t.Errorf("event %d of partition %s: id %d after %d", sequence, partition, id, last)
			}
			last = id
			if p, ok := partitionOf(id); !ok || p != partition {
				t.Errorf("partition %s: the id tells %q, %v", partition, p, ok)
			}
		}
	}
	for _, partition := range []string{"", "01", "-1", "2047", "99999", "north", "+3"} {
		id := deadLetterID(partition, 5, "1")
		if _, ok := partitionOf(id); ok || id <= 0 {
			t.Errorf("partition %q: id %d", partition, id)
		}
	}
	r := &index{partition: "0"}
	r.add(entry{Sequence: 1})
	r.add(entry{Sequence: 1 + 1<<35}) // whose id would be the same
	if r.entries[0].ID == r.entries[1].ID {
		t.Errorf("two dead letters have id %d", r.entries[0].ID)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("3", "a", "3", "9", "AAA", "2026-01-02T03:04:05Z")
	f.Fuzz(func(t *testing.T, leaseEpoch, owner, epoch, sequence, done, updated string) {
		_, _ = decode(map[string]*string{
			"Leaseepoch": &leaseEpoch, "Leaseowner": &owner, "Epoch": &epoch, "Sequencenumber": &sequence, "Done": &done, "Updated": &updated, "Nothing": nil,
		})
	})
}
