package cosmosdb_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/cosmosdb"
)

func (w *world) fault(t *testing.T, f cosmosdb.Fault) {
	t.Helper()
	w.account.Faults().Clear()
	if _, err := w.account.Faults().Add(f); err != nil {
		t.Fatal(err)
	}
}

func TestFaults(t *testing.T) {
	w := serve(t, nil, docs)
	ranges, _ := w.ranges(t, nil)
	key := keysOf(t, ranges[0], 1)[0]
	one := func(id string) []byte { return []byte("[" + upsert(id, key, "") + "]") }
	for _, f := range []struct {
		fault     cosmosdb.Fault
		status    int
		substatus string
	}{
		{cosmosdb.Fault{Status: 503}, 503, ""}, {cosmosdb.Fault{Status: 408}, 408, ""}, {cosmosdb.Fault{Status: 449}, 449, ""},
		{cosmosdb.Fault{Status: 429, RetryAfter: time.Second}, 429, "3200"}, {cosmosdb.Fault{Status: 410}, 410, "1002"}, {cosmosdb.Fault{Status: 410, Substatus: 1007}, 410, "1007"},
		{cosmosdb.Fault{Status: 410, Substatus: 1008}, 410, "1008"}, {cosmosdb.Fault{Status: 410, Substatus: 1000}, 410, "1000"}, {cosmosdb.Fault{Status: 400}, 400, "1001"},
	} {
		f.fault.Kind, f.fault.On, f.fault.Times, f.fault.Container, f.fault.Range = cosmosdb.FaultStatus, cosmosdb.OnBatch, 1, "db/docs", ranges[0].ID
		w.fault(t, f.fault)
		a := w.bulk(t, ranges[0].ID, one("1"), nil)
		if a.status != f.status || a.substatus() != f.substatus || f.fault.RetryAfter > 0 && a.header.Get("x-ms-retry-after-ms") != "1000" {
			t.Errorf("%+v: %d/%s", f.fault, a.status, a.substatus())
		}
		if a := w.read(t, "1", key); a.status != http.StatusNotFound {
			t.Fatalf("%+v: what was refused is there", f.fault)
		}
		f.fault.Each, f.fault.Times = true, 2
		w.fault(t, f.fault)
		three := fmt.Appendf(nil, "[%s,%s,%s]", upsert("1", key, ""), upsert("2", key, ""), upsert("3", key, ""))
		list := results(t, w.bulk(t, ranges[0].ID, three, nil))
		if list[0].StatusCode != f.status || fmt.Sprint(list[1].SubStatusCode) != f.substatus && f.substatus != "" || list[2].StatusCode/100 != 2 {
			t.Errorf("%+v each: %+v", f.fault, list)
		}
	}
	if hits := w.account.Faults().List()[0].Hits; hits != 2 {
		t.Errorf("%d hits", hits)
	}
	w.fault(t, cosmosdb.Fault{Kind: cosmosdb.FaultDrop, On: cosmosdb.OnBatch, Times: 1})
	if err := w.try(t, ranges[0].ID, one("dropped")); err == nil {
		t.Error("the connection wasn't cut")
	}
	w.fault(t, cosmosdb.Fault{Kind: cosmosdb.FaultLoseAnswer, On: cosmosdb.OnBatch, Times: 1})
	if err := w.try(t, ranges[0].ID, one("lost")); err == nil {
		t.Error("the connection wasn't cut")
	}
	if a, b := w.read(t, "dropped", key), w.read(t, "lost", key); a.status != http.StatusNotFound || b.status != http.StatusOK {
		t.Errorf("dropped: %d, answer lost: %d", a.status, b.status)
	}
	w.fault(t, cosmosdb.Fault{Kind: cosmosdb.FaultDelay, On: cosmosdb.OnRead, Delay: 30 * time.Millisecond, For: time.Hour})
	if began := time.Now(); w.read(t, "lost", key).status != http.StatusOK || time.Since(began) < 30*time.Millisecond {
		t.Error("no delay")
	}
	w.fault(t, cosmosdb.Fault{Kind: cosmosdb.FaultStatus, Status: 503, For: time.Nanosecond})
	if a := w.read(t, "lost", key); a.status != http.StatusOK {
		t.Errorf("a fault that is over: %d", a.status)
	}
	for _, bad := range []cosmosdb.Fault{{}, {Kind: "nope"}, {Kind: cosmosdb.FaultStatus}, {Kind: cosmosdb.FaultStatus, Status: 200}, {Kind: cosmosdb.FaultDelay},
		{Kind: cosmosdb.FaultDrop, On: "nope"}, {Kind: cosmosdb.FaultDrop, Times: -1}, {Kind: cosmosdb.FaultDrop, Each: true}, {Kind: cosmosdb.FaultDrop, Range: "0"}} {
		if _, err := w.account.Faults().Add(bad); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

// try sends a batch over a new connection, on which the HTTP client doesn't retry by
// itself.
func (w *world) try(t *testing.T, rangeID string, operations []byte) error {
	t.Helper()
	date := time.Now().UTC().Format(http.TimeFormat)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.endpoint+docsLink+"/docs", bytes.NewReader(operations))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{
		"x-ms-date": date, "Authorization": sign(cosmosdb.DevKey, "post", "docs", docsLink, date), "x-ms-cosmos-is-batch-request": "True",
		"x-ms-documentdb-partitionkeyrangeid": rangeID, "x-ms-cosmos-batch-atomic": "false",
	} {
		req.Header.Set(k, v)
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	res, err := client.Do(req)
	if err == nil {
		res.Body.Close()
	}
	return err
}

// oneConnection is an HTTP client's transport with a single connection. The standard one gives its
// connection up if an answer comes more than 50 ms before it has noted that the request is written.
type oneConnection struct {
	net.Conn
	answers *bufio.Reader
}

func (c *oneConnection) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := req.Write(c); err != nil {
		return nil, err
	}
	return http.ReadResponse(c.answers, req)
}

// A client that reuses its connection opens one.
func TestConnectionsAreCounted(t *testing.T) {
	w := serve(t, nil, docs)
	conn, err := net.Dial("tcp", strings.Trim(strings.TrimPrefix(w.endpoint, "http:"), "/"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := &http.Client{Transport: &oneConnection{conn, bufio.NewReader(conn)}}
	for range 20 {
		if a := w.do(t, client, http.MethodGet, docsLink, "colls", docsLink, nil, nil); a.status != http.StatusOK {
			t.Fatalf("status %d: %s", a.status, a.body)
		}
	}
	if s := w.account.Stats(); s.Connections != 1 || s.Open != 1 || s.Requests != 20 {
		t.Errorf("stats %+v", s)
	}
}
