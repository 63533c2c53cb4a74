package cosmosdb_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/cosmosdb"
	"github.com/sluice-go/sluice/internal/partitionkey"
)

// answer is the response to a request.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) substatus() string { return a.header.Get("x-ms-substatus") }

// do sends a signed request about a resource of the kind and link.
func (w *world) do(t testing.TB, client *http.Client, method, path, kind, link string, body []byte, header map[string]string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, w.endpoint+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	date := time.Now().UTC().Format(http.TimeFormat)
	req.Header.Set("x-ms-date", date)
	req.Header.Set("Authorization", sign(cosmosdb.DevKey, method, kind, link, date))
	for k, v := range header {
		req.Header.Set(k, v)
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, text}
}

func sign(key, method, kind, link, date string) string {
	secret, _ := base64.StdEncoding.DecodeString(key)
	h := hmac.New(sha256.New, secret)
	fmt.Fprintf(h, "%s\n%s\n%s\n%s\n\n", strings.ToLower(method), kind, link, strings.ToLower(date))
	return url.QueryEscape("type=master&ver=1.0&sig=" + base64.StdEncoding.EncodeToString(h.Sum(nil)))
}

const docsLink = "dbs/db/colls/docs"

// bulk sends a bulk batch.
func (w *world) bulk(t testing.TB, rangeID string, operations []byte, header map[string]string) answer {
	t.Helper()
	all := map[string]string{
		"x-ms-cosmos-is-batch-request": "True", "x-ms-documentdb-partitionkeyrangeid": rangeID, "x-ms-cosmos-batch-atomic": "false",
		"x-ms-cosmos-batch-continue-on-error": "true", "Content-Type": "application/json",
	}
	for k, v := range header {
		all[k] = v
	}
	return w.do(t, http.DefaultClient, http.MethodPost, docsLink+"/docs", "docs", docsLink, operations, all)
}

type opResult struct {
	StatusCode, SubStatusCode int
	RequestCharge             float64
	ETag                      string
	ResourceBody              json.RawMessage
	RetryAfterMilliseconds    int
}

func results(t testing.TB, a answer) []opResult {
	t.Helper()
	var list []opResult
	if err := json.Unmarshal(a.body, &list); err != nil {
		t.Fatalf("status %d: %s: %v", a.status, a.body, err)
	}
	return list
}

type keyRange struct {
	ID, MinInclusive, MaxExclusive string
	Parents                        []string
}

func (w *world) ranges(t testing.TB, header map[string]string) ([]keyRange, answer) {
	t.Helper()
	a := w.do(t, http.DefaultClient, http.MethodGet, docsLink+"/pkranges", "pkranges", docsLink, nil, header)
	if a.status == http.StatusNotModified {
		return nil, a
	}
	var list struct{ PartitionKeyRanges []keyRange }
	if err := json.Unmarshal(a.body, &list); err != nil {
		t.Fatalf("status %d: %s: %v", a.status, a.body, err)
	}
	return list.PartitionKeyRanges, a
}

// keysOf returns n keys in a range.
func keysOf(t testing.TB, r keyRange, n int) []string {
	t.Helper()
	bounds, err := partitionkey.ParseRange(r.MinInclusive, r.MaxExclusive)
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for i := 0; len(keys) < n; i++ {
		if k := fmt.Sprint("key-", i); bounds.Contains(partitionkey.Definition{Version: 2}.Hash(partitionkey.String(k))) {
			keys = append(keys, k)
		}
	}
	return keys
}

func upsert(id, key string, more string) string {
	return fmt.Sprintf(`{"operationType":"Upsert","partitionKey":"[\"%s\"]","resourceBody":{"id":"%s","key":"%s"%s}}`, key, id, key, more)
}

func TestBulk(t *testing.T) {
	var writes []cosmosdb.Write
	w := serve(t, &cosmosdb.Config{OnWrite: func(x cosmosdb.Write) { writes = append(writes, x) }}, docs)
	ranges, _ := w.ranges(t, nil)
	keys := keysOf(t, ranges[1], 3)
	foreign := keysOf(t, ranges[2], 1)[0]
	ops := []string{
		upsert("1", keys[0], ""), upsert("1", keys[1], ""), upsert("1", keys[0], `,"v":2`), upsert("1", foreign, ""),
		fmt.Sprintf(`{"operationType":"Create","partitionKey":"[\"%s\"]","resourceBody":{"id":"1","key":"%s"}}`, keys[0], keys[0]),
		fmt.Sprintf(`{"operationType":"Read","id":"1","partitionKey":"[\"%s\"]"}`, keys[0]),
		fmt.Sprintf(`{"operationType":"Replace","id":"1","ifMatch":"\"stale\"","partitionKey":"[\"%s\"]","resourceBody":{"id":"1","key":"%s"}}`, keys[1], keys[1]),
		fmt.Sprintf(`{"operationType":"Delete","id":"none","partitionKey":"[\"%s\"]"}`, keys[0]),
		fmt.Sprintf(`{"operationType":"Upsert","partitionKey":"[\"%s\"]","resourceBody":{"id":"2","key":"%s"}}`, keys[0], keys[1]),
		fmt.Sprintf(`{"operationType":"Upsert","partitionKey":"[\"%s\"]","resourceBody":{"key":"%s"}}`, keys[0], keys[0]),
		fmt.Sprintf(`{"operationType":"Patch","id":"1","partitionKey":"[\"%s\"]","resourceBody":[]}`, keys[0]),
		fmt.Sprintf(`{"operationType":"Upsert","minimalReturnPreference":true,"partitionKey":"[\"%s\"]","resourceBody":{"id":"\u0033","key":"%s"}}`, keys[2], keys[2]),
	}
	a := w.bulk(t, ranges[1].ID, []byte("["+strings.Join(ops, ",")+"]"), nil)
	if a.status != http.StatusMultiStatus {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
	list := results(t, a)
	if len(list) != len(ops) {
		t.Fatalf("%d results: %s", len(list), a.body)
	}
	for i, want := range []int{201, 201, 200, 410, 409, 200, 412, 404, 400, 400, 400, 201} {
		if list[i].StatusCode != want {
			t.Errorf("operation %d: %+v", i, list[i])
		}
	}
	if list[3].SubStatusCode != 1002 || list[8].SubStatusCode != 1001 || !strings.Contains(string(list[5].ResourceBody), `"v":2`) ||
		list[0].ResourceBody == nil || list[11].ResourceBody != nil || list[5].ETag != list[2].ETag || list[0].RequestCharge < 6 || list[4].RequestCharge > 2 {
		t.Errorf("results %s", a.body)
	}
	if a := w.bulk(t, "AAAAAYAAAAI=,"+ranges[1].ID, []byte("["+ops[1]+"]"), nil); a.status != http.StatusOK {
		t.Errorf("a range with the container's id: %d %s", a.status, a.body)
	}
	if a := w.bulk(t, "77", []byte("["+ops[0]+"]"), nil); a.status != http.StatusGone || a.substatus() != "1002" {
		t.Errorf("an unknown range: %d %s", a.status, a.body)
	}
	a = w.bulk(t, ranges[1].ID, []byte("["+strings.Join(ops, ",")+"]"), map[string]string{"x-ms-cosmos-batch-continue-on-error": "false"})
	if list = results(t, a); list[3].StatusCode != 410 || list[4].StatusCode != 424 || list[11].StatusCode != 424 {
		t.Errorf("it went on: %s", a.body)
	}
	a = w.bulk(t, ranges[1].ID, []byte("["+ops[0]+"]"), map[string]string{"Prefer": "return=minimal"})
	if list = results(t, a); a.status != http.StatusOK || list[0].ResourceBody != nil || list[0].ETag == "" {
		t.Errorf("status %d: %s", a.status, a.body)
	}
	for _, body := range []string{"", "[]", "{}", "[1]", "[" + ops[0], "[" + strings.Repeat(ops[0]+",", 100) + ops[0] + "]", `[{"operationType":"Upsert","resourceBody":{"id":"1"]}]`} {
		if a := w.bulk(t, ranges[1].ID, []byte(body), nil); a.status != http.StatusBadRequest {
			t.Errorf("%.40s: %d %s", body, a.status, a.body)
		}
	}
	if len(writes) < 5 || writes[0].ID != "1" || writes[0].Replaced || !writes[2].Replaced || writes[0].Key != `["`+keys[0]+`"]` || writes[0].Range != ranges[1].ID {
		t.Errorf("writes %+v", writes)
	}
}

func TestSplit(t *testing.T) {
	w := serve(t, nil, docs)
	ranges, full := w.ranges(t, map[string]string{"A-IM": "Incremental Feed"})
	etag := full.header.Get("etag")
	if _, a := w.ranges(t, map[string]string{"A-IM": "Incremental Feed", "If-None-Match": etag}); a.status != http.StatusNotModified || len(ranges) != 5 {
		t.Errorf("nothing has changed: %d", a.status)
	}
	keys := keysOf(t, ranges[2], 60)
	for _, k := range keys {
		if a := w.bulk(t, ranges[2].ID, []byte("["+upsert("1", k, "")+"]"), nil); a.status != http.StatusOK {
			t.Fatal(string(a.body))
		}
	}
	// A page before the split, the rest after it.
	list := func(header map[string]string) ([]struct{ Key string }, string) {
		header["x-ms-max-item-count"] = "25"
		a := w.do(t, http.DefaultClient, http.MethodGet, docsLink+"/docs", "docs", docsLink, nil, header)
		var page struct{ Documents []struct{ Key string } }
		if err := json.Unmarshal(a.body, &page); err != nil {
			t.Fatal(string(a.body))
		}
		return page.Documents, a.header.Get("x-ms-continuation")
	}
	found, next := list(map[string]string{})
	c, err := w.account.Container("db", "docs")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Split(ranges[2].ID); err != nil {
		t.Fatal(err)
	}
	if err := c.Split(ranges[2].ID); err == nil {
		t.Error("split twice")
	}
	for next != "" {
		var page []struct{ Key string }
		page, next = list(map[string]string{"x-ms-continuation": next})
		found = append(found, page...)
	}
	seen := make(map[string]bool)
	for _, d := range found {
		seen[d.Key] = true
	}
	if len(found) != 60 || len(seen) != 60 {
		t.Errorf("%d documents in all pages, %d of them different", len(found), len(seen))
	}
	if a := w.bulk(t, ranges[2].ID, []byte("["+upsert("1", keys[0], "")+"]"), nil); a.status != http.StatusGone || a.substatus() != "1002" {
		t.Errorf("the old range: %d %s", a.status, a.body)
	}
	fresh, a := w.ranges(t, map[string]string{"A-IM": "Incremental Feed", "If-None-Match": etag})
	if len(fresh) != 2 || fresh[0].Parents[0] != ranges[2].ID || fresh[0].MinInclusive != ranges[2].MinInclusive || fresh[1].MaxExclusive != ranges[2].MaxExclusive ||
		fresh[0].MaxExclusive != fresh[1].MinInclusive || a.header.Get("etag") == etag {
		t.Fatalf("after the split %+v", fresh)
	}
	stats := c.Stats()
	if stats.Documents != 60 || len(stats.Ranges) != 6 || stats.Ranges[2].Documents != 30 || stats.Ranges[3].Documents != 30 || stats.Spent < 300 {
		t.Errorf("stats %+v", stats)
	}
	// Operations of a batch that was routed by the old ranges.
	moved := 0
	for _, k := range keys {
		r := results(t, w.bulk(t, fresh[0].ID, []byte("["+upsert("1", k, `,"again":true`)+"]"), nil))[0]
		switch {
		case r.StatusCode == 410 && r.SubStatusCode == 1002:
			moved++
		case r.StatusCode != 200:
			t.Errorf("%s: %+v", k, r)
		}
	}
	if moved != 30 {
		t.Errorf("%d keys have moved", moved)
	}
	all, _ := w.ranges(t, nil)
	at := ""
	for _, r := range all {
		if r.MinInclusive != at {
			t.Errorf("a gap at %s: %+v", at, all)
		}
		at = r.MaxExclusive
	}
}

// Clients that route by cached ranges, and read them again when one is gone, lose
// nothing in splits.
func TestSplitUnderLoad(t *testing.T) {
	w := serve(t, nil, docs)
	c, err := w.account.Container("db", "docs")
	if err != nil {
		t.Fatal(err)
	}
	const writers, each = 3, 150
	var group sync.WaitGroup
	for writer := range writers {
		group.Go(func() {
			ranges, _ := w.ranges(t, nil)
			for i := 0; i < each; {
				key := fmt.Sprintf("key-%d-%d", writer, i)
				hash := partitionkey.Definition{Version: 2}.Hash(partitionkey.String(key))
				at := slices.IndexFunc(ranges, func(r keyRange) bool { return hash >= r.MinInclusive && hash < r.MaxExclusive })
				a := w.bulk(t, ranges[at].ID, []byte("["+upsert("1", key, "")+"]"), nil)
				switch {
				case a.status == http.StatusOK && results(t, a)[0].StatusCode == http.StatusCreated:
					i++
				case a.status == http.StatusGone && a.substatus() == "1002":
					ranges, _ = w.ranges(t, nil)
				default:
					t.Errorf("status %d: %s", a.status, a.body)
					return
				}
			}
		})
	}
	for split := range 8 {
		for s := c.Stats(); s.Documents < writers*each*split/10 && !t.Failed(); s = c.Stats() {
			runtime.Gosched()
		}
		if err := c.Split(c.Stats().Ranges[split].ID); err != nil {
			t.Error(err)
		}
	}
	group.Wait()
	if s := c.Stats(); s.Documents != writers*each || len(s.Ranges) != 13 {
		t.Errorf("%d documents in %d ranges", s.Documents, len(s.Ranges))
	}
}
