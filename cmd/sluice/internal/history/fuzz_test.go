package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Whatever a log holds, what is read of it was written there as a line, in
// order, and only its last line may be skipped.
func FuzzRead(f *testing.F) {
	var log bytes.Buffer
	for _, r := range good() {
		line, err := json.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		log.Write(append(line, '\n'))
	}
	f.Add(log.Bytes())
	f.Add(log.Bytes()[:log.Len()-5])
	f.Add([]byte("nonsense\n{}\n"))
	f.Add([]byte("{}\n\n{}"))
	f.Add([]byte(`{"kind":"sent","partition":"0","to":9223372036854775807}`))
	f.Fuzz(func(t *testing.T, log []byte) {
		lines := bytes.Split(bytes.TrimSuffix(log, []byte("\n")), []byte("\n"))
		n := 0
		err := Read(bytes.NewReader(log), func(r Record) {
			var want Record
			if n >= len(lines) || json.Unmarshal(lines[n], &want) != nil || r != want {
				t.Fatalf("record %d is %+v", n, r)
			}
			n++
		})
		if err == nil && n < len(lines)-1 {
			t.Fatalf("%d lines were read as %d records", len(lines), n)
		}
	})
}

// FuzzChecker compares the verdict on events with a count by hand, and on
// checkpoints with what a run without faults looks like. The script is a list
// of records, three bytes each.
func FuzzChecker(f *testing.F) {
	f.Add([]byte{0, 0, 3, 8, 0, 0, 8, 0, 1, 8, 0, 2, 9, 0, 3})
	f.Add([]byte{0, 0, 2, 1, 1, 0, 2, 1, 2, 1, 2, 2, 2, 2, 1, 8, 0, 0, 8, 0, 0})
	f.Add([]byte{0, 0, 5, 10, 0, 0x45, 8, 0, 2, 8, 0, 5})
	f.Add([]byte{1, 1, 0, 2, 1, 0x23, 1, 2, 2, 2, 1, 0x43})
	f.Fuzz(func(t *testing.T, script []byte) {
		var c Checker
		sent, void, count := map[int64]bool{}, map[int64]bool{}, map[int64]int{}
		var text []string
		for ; len(script) >= 3; script = script[3:] {
			kind, who, at := script[0], script[1], script[2]
			r := Record{Partition: "0", Epoch: int64(who % 4), Owner: string('a' + rune(who/4%3)), From: int64(at>>4) - 2, To: int64(at&15) - 2}
			switch kind % 11 {
			case 0:
				if len(sent) > 0 || r.To < 0 {
					continue
				}
				r.Kind, r.From = Sent, -1
				for n := range r.To + 1 {
					sent[n] = true
				}
			case 1:
				r.Kind = Claimed
			case 2, 3, 4:
				r.Kind = Committed
			case 5:
				r.Kind = Redriven
			case 6:
				r.Kind = Fenced
			case 7:
				r.Kind = Unknown
			case 8, 9:
				r.Kind = []Kind{Effect, DeadLetter}[kind%11-8]
				if r.To >= 0 {
					count[r.To]++
				}
			case 10:
				r.Kind = Void
				for n := max(0, r.From+1); n <= r.To; n++ {
					void[n] = true
				}
			}
			text = append(text, fmt.Sprintf("%+v", r))
			c.Add(r)
		}
		want := []string{}
		for n := range int64(14) {
			switch {
			case sent[n] && !void[n] && count[n] == 0:
				want = append(want, fmt.Sprint(Lost, n))
			case (!sent[n] || void[n]) && count[n] > 0:
				want = append(want, fmt.Sprint(Invented, n))
			}
			if count[n] > 1 {
				want = append(want, fmt.Sprint(Duplicated, n))
			}
		}
		got := []string{}
		found := c.Findings(0)
		for _, f := range found {
			if f.Sequence >= 0 && (f.Fault == Lost || f.Fault == Duplicated || f.Fault == Invented) {
				got = append(got, fmt.Sprint(f.Fault, f.Sequence))
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Fatalf("found %v, want %v, in:\n%s", got, want, strings.Join(text, "\n"))
		}
		if !slices.IsSortedFunc(found, func(a, b Finding) int { return int(a.Sequence - b.Sequence) }) {
			t.Fatalf("not in order: %v", found)
		}
		for _, f := range c.Findings(1) {
			if !slices.Contains(found, f) {
				t.Fatalf("%v is found only where few are asked for", f)
			}
		}
	})
}

// FuzzGoodRun: a run without faults, whatever its takeovers and lost answers, is
// found to be one. The script says what happens next, in two bytes.
func FuzzGoodRun(f *testing.F) {
	f.Add([]byte{1, 3, 0, 0, 1, 2, 2, 1, 3, 4, 1, 9})
	f.Fuzz(func(t *testing.T, script []byte) {
		list := []Record{}
		epoch, position, known, claimed := int64(0), int64(-1), int64(-1), false
		for ; len(script) >= 2; script = script[2:] {
			n := int64(script[1] % 8)
			me := Record{Owner: fmt.Sprint("owner ", epoch), Partition: "0", Epoch: epoch}
			switch kind := script[0] % 4; {
			case kind == 0 || !claimed: // taken over, or claimed again
				if n > 3 || !claimed {
					epoch++
					me.Owner, me.Epoch = fmt.Sprint("owner ", epoch), epoch
				}
				me.Kind, me.To = Claimed, position
				claimed, known = true, position
			case kind == 1: // committed
				if known != position {
					continue // fenced, by its position
				}
				me.Kind, me.From, me.To = Committed, position, position+n
				position += n
				known = position
			case kind == 2: // committed, and died before it could say so
				if known == position {
					position += n
				}
				continue
			case kind == 3:
				me.Kind, me.From, me.To = Fenced, position, position+n
			}
			list = append(list, me)
		}
		list = append(list, Record{Kind: Sent, Partition: "0", From: -1, To: position})
		for n := range position + 1 {
			list = append(list, Record{Kind: []Kind{Effect, DeadLetter}[n%2], Partition: "0", To: n})
		}
		if found := check(list); len(found) > 0 {
			t.Fatalf("%v in %+v", found, list)
		}
	})
}
