package upload_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/records"
	"github.com/sluice-go/sluice/cmd/sluice/internal/upload"
)

func newFeed(t testing.TB, cfg *upload.FeedConfig) *upload.Feed {
	t.Helper()
	f, err := upload.NewFeed(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func reader(text string) *records.Reader {
	return records.NewReader(strings.NewReader(text), "in", nil)
}

// drawn is what a feed makes of a text.
func drawn(ctx context.Context, f *upload.Feed, text string) (list []upload.Record, err error) {
	for r, wrong := range f.Records(ctx, reader(text)) {
		if wrong != nil {
			return list, wrong
		}
		list = append(list, r)
	}
	return list, nil
}

func TestRecordsWithTheirKeys(t *testing.T) {
	const n = 5000
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"n\":%d,\"key\":\"k%d\"}\n", i, i%99)
	}
	for field, key := range map[string]func(i int) string{
		"":    func(int) string { return "" },
		"key": func(i int) string { return fmt.Sprint("k", i%99) },
		"n":   func(i int) string { return fmt.Sprint(i) },
	} {
		list, err := drawn(t.Context(), newFeed(t, &upload.FeedConfig{KeyField: field}), b.String())
		if err != nil || len(list) != n {
			t.Fatalf("field %q: %d records: %v", field, len(list), err)
		}
		for i, r := range list {
			if r.Key != key(i) || r.Number != i+1 || string(r.Body) != fmt.Sprintf(`{"n":%d,"key":"k%d"}`, i, i%99) {
				t.Fatalf("field %q: record %d has key %q and is %s", field, i, r.Key, r.Body)
			}
		}
	}
}

func TestTooLargeRecordsAreNamedAndTheOthersDrawn(t *testing.T) {
	var named []string
	f := newFeed(t, &upload.FeedConfig{KeyField: "key", Rejected: func(e *records.RejectedError, number int64) {
		named = append(named, fmt.Sprint(e.Place, " number ", number))
	}})
	huge := fmt.Sprintf(`{"key":"a","pad":%q}`, strings.Repeat("x", records.MaxSize))
	list, err := drawn(t.Context(), f, `{"key":"a"}`+"\n"+huge+"\n"+`{"key":"b"}`+"\n")
	if err != nil || len(list) != 2 || list[1].Key != "b" || list[1].Position != 3 || strings.Join(named, " ") != "in: line 2 number 2" {
		t.Errorf("%d records, %q too large: %v", len(list), named, err)
	}
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		list, err := drawn(t.Context(), newFeed(t, &upload.FeedConfig{Rate: 1000}), strings.Repeat("{}\n", 500))
		if took := time.Since(began); err != nil || len(list) != 500 || took < 490*time.Millisecond || took > 510*time.Millisecond {
			t.Errorf("%d records at 1,000 a second took %v: %v", len(list), took, err)
		}
	})
}

func TestARecordDoesNotWaitForTheNext(t *testing.T) {
	in, out := io.Pipe()
	defer out.Close()
	go io.WriteString(out, `{"n":0}`+"\n")
	gone := errors.New("caller is gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	count := 0
	for r, err := range newFeed(t, nil).Records(ctx, records.NewReader(in, "in", nil)) {
		if count++; count == 1 {
			if err != nil || string(r.Body) != `{"n":0}` {
				t.Errorf("got %s, %v", r.Body, err)
			}
			cancel(gone)
		} else if err != gone {
			t.Errorf("got %v", err)
		}
	}
	if count != 2 {
		t.Errorf("yielded %d times", count)
	}
}

// A record whose key cannot be sent is rejected, and those after it are drawn.
func TestRecordsWithoutAKeyAreRejected(t *testing.T) {
	for in, want := range map[string]string{
		`{"k":1}`:      "key field key is missing",
		`{"key":null}`: "key field key is missing",
		`{"key":""}`:   "key field key is empty",
		`{"key":[1]}`:  "key field key is an object or an array",
		`7`:            "key field key: the record is not a JSON object",
		`{"key":"` + strings.Repeat("x", 129) + `"}`: "key field key has 129 characters",
		`{"key":"\ud800"}`:                           "key field key has half of a surrogate pair",
		`{"key":"a\udc00\ud800b"}`:                   "key field key has half of a surrogate pair",
	} {
		var named []string
		f := newFeed(t, &upload.FeedConfig{KeyField: "key", Rejected: func(e *records.RejectedError, number int64) {
			named = append(named, fmt.Sprint(e, " number ", number))
		}})
		list, err := drawn(t.Context(), f, `{"key":"\ud83d\ude00"}`+"\n"+in+"\n"+`{"key":"\\ud800"}`+"\n")
		if err != nil || len(list) != 2 || list[0].Key != "😀" || list[1].Key != `\ud800` || list[1].Position != 3 {
			t.Errorf("%s: drew %v: %v", in, list, err)
		}
		if len(named) != 1 || !strings.HasPrefix(named[0], "in: line 2: "+want) || !strings.HasSuffix(named[0], " number 2") {
			t.Errorf("%s: rejected %q, want %s", in, named, want)
		}
	}
}

func TestImpossibleRates(t *testing.T) {
	for _, rate := range []float64{-1, 1e8} {
		if _, err := upload.NewFeed(&upload.FeedConfig{Rate: rate}); err == nil {
			t.Errorf("no error for a rate of %v", rate)
		}
	}
}
