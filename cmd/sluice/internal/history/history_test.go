package history

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
)

// good is a run of two owners with nothing wrong: a kills itself after a
// commit that its log does not have.
func good() []Record {
	list := []Record{
		{Kind: Sent, Partition: "0", From: -1, To: 9},
		{Kind: Claimed, Owner: "a", Partition: "0", Epoch: 1, To: -2},
		{Kind: Committed, Owner: "a", Partition: "0", Epoch: 1, From: -1, To: 2},
		{Kind: Committed, Owner: "a", Partition: "0", Epoch: 1, From: 2, To: 4},
		{Kind: Claimed, Owner: "b", Partition: "0", Epoch: 2, To: 6},
		{Kind: Committed, Owner: "b", Partition: "0", Epoch: 2, From: 6, To: 8},
		{Kind: Claimed, Owner: "b", Partition: "0", Epoch: 2, To: 9}, // its commit's answer was lost
		{Kind: Committed, Owner: "b", Partition: "0", Epoch: 2, From: 8, To: 9},
		{Kind: DeadLetter, Partition: "0", To: 3},
	}
	for n := range int64(10) {
		if n != 3 {
			list = append(list, Record{Kind: Effect, Partition: "0", To: n})
		}
	}
	return list
}

func check(list []Record) []Finding {
	var c Checker
	for _, r := range list {
		c.Add(r)
	}
	return c.Findings(0)
}

func TestNothingWrong(t *testing.T) {
	if found := check(good()); len(found) > 0 {
		t.Errorf("found %v", found)
	}
}

// A number that is no event must have no effect, and is not lost.
func TestNumbersWithoutEvents(t *testing.T) {
	list := good()
	list[0].To = 12
	list = append(list, Record{Kind: Void, Partition: "0", From: 9, To: 12})
	if found := check(list); len(found) > 0 {
		t.Errorf("found %v", found)
	}
}

// TestFindsEachFault plants each fault in a good run.
func TestFindsEachFault(t *testing.T) {
	for _, c := range []struct {
		want  Fault
		plant func([]Record) []Record
	}{
		{Lost, func(l []Record) []Record { return append(l[:12:12], l[13:]...) }},
		{Lost, func(l []Record) []Record { l[0].To = 10; return l }},
		{Duplicated, func(l []Record) []Record { return append(l, l[12]) }},
		{Duplicated, func(l []Record) []Record { return append(l, Record{Kind: Effect, Partition: "0", To: 3}) }},
		{Invented, func(l []Record) []Record { return append(l, Record{Kind: Effect, Partition: "0", To: 10}) }},
		{Invented, func(l []Record) []Record { return append(l, Record{Kind: Effect, Partition: "7", To: 0}) }},
		{Invented, func(l []Record) []Record { return append(l, Record{Kind: Effect, Partition: "0", To: 1 << 60}) }},
		{Invented, func(l []Record) []Record { l[0].To = 1 << 60; return l }},
		{Invented, func(l []Record) []Record { return append(l, Record{Kind: Void, Partition: "0", From: 4, To: 6}) }},
		{OutOfOrder, func(l []Record) []Record { l[2], l[3] = l[3], l[2]; l[1].To = 2; return l }},
		{OutOfOrder, func(l []Record) []Record { l[7].From, l[7].To = 4, 6; return l }},
		{Stale, func(l []Record) []Record {
			return append(l, Record{Kind: Committed, Owner: "a", Partition: "0", Epoch: 1, From: 4, To: 7})
		}},
		{Stale, func(l []Record) []Record { l[3].Owner = "z"; return l }},
		{Skipped, func(l []Record) []Record { l[3].From = 3; return l }},
		{Backwards, func(l []Record) []Record { l[6].To = 7; return l }},
		{Backwards, func(l []Record) []Record { l[5].To = 5; return l }},
	} {
		found := check(c.plant(good()))
		ok := false
		for _, f := range found {
			ok = ok || f.Fault == c.want
		}
		if !ok {
			t.Errorf("%s was planted, found %v", c.want, found)
		}
	}
}

func TestWriterAndReader(t *testing.T) {
	var log bytes.Buffer
	w := NewWriter(&log)
	at := func(n int64) sluice.Position { return sluice.Position{Sequence: n} }
	for _, o := range []driver.Observation{
		{Kind: driver.KindAcquired, Owner: "a", Partition: "0", Epoch: 1},
		{Kind: driver.KindClaimed, Owner: "a", Partition: "0", Epoch: 1, To: at(-1)},
		{Kind: driver.KindCommitted, Owner: "a", Partition: "0", Epoch: 1, From: at(-1), To: at(2)},
		{Kind: driver.KindCommitted, Owner: "a", Partition: "0", Epoch: 1, From: at(1), To: at(3)},
		{Kind: driver.KindFenced, Owner: "a", Partition: "0", Epoch: 1, From: at(3), To: at(5)},
	} {
		w.Observe(o)
	}
	if w.Err() != nil || strings.Count(log.String(), "\n") != 4 {
		t.Fatalf("log %q, %v", log.String(), w.Err())
	}
	log.WriteString(`{"kind":"comm`)
	var c Checker
	if err := Read(&log, c.Add); err != nil {
		t.Fatal(err)
	}
	if found := c.Findings(0); len(found) != 1 || found[0].Fault != OutOfOrder {
		t.Errorf("found %v", found)
	}
	if err := Read(strings.NewReader("nonsense\n{}\n"), c.Add); err == nil {
		t.Error("a bad line was ignored")
	}
}
