//go:build linux

package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path"
	"sync"
	"time"

	"github.com/sluice-go/sluice/internal/proof/commitproxy"
)

// receiver is the service that the pipelines of an attack post to, if [Config.Posts]. It writes the
// rows, each with the identity of its event as key, and rejects flights without a delay. The faults
// of a transaction strike the request of a batch: its arrival is [begins], its effect [commits].
type receiver struct {
	world     *world
	server    *http.Server
	addr      string
	consumers sync.Map // by name

	mu       sync.Mutex
	highest  map[string]int64 // by partition: all events up to it were received
	requests int
	repeated int64           // events that were received again
	late     []chan struct{} // requests that are held back
	finding  map[string]bool // by partition: one is enough
	findings []string
}

const receiverTable = `CREATE TABLE flights (hub_partition text, sequence_number bigint, delay bigint NOT NULL,
	distance bigint NOT NULL, origin text, PRIMARY KEY (hub_partition, sequence_number))`

func (w *world) startReceiver(ctx context.Context) error {
	if err := execute(ctx, w.db, receiverTable); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	v := &receiver{world: w, addr: listener.Addr().String(), highest: map[string]int64{}, finding: map[string]bool{}}
	v.server = &http.Server{Handler: v, ReadTimeout: time.Minute}
	w.deliveries.Go(func() { _ = v.server.Serve(listener) }) // until close
	w.receiver = v
	return nil
}

func (v *receiver) close() error {
	if v == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := v.server.Shutdown(ctx)
	v.deliver() // of requests that arrived until then, too
	return err
}

// posted is an event in a request.
type posted struct {
	ID   int64 `json:"id,string"`
	Data flight
}

// ServeHTTP takes a batch. The path is the consumer's name; no fault strikes other programs.
func (v *receiver) ServeHTTP(answer http.ResponseWriter, request *http.Request) {
	partition := request.Header.Get("Sluice-Partition")
	var batch []posted
	if json.NewDecoder(request.Body).Decode(&batch) != nil || len(batch) == 0 { // cut off
		answer.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	fault := commitproxy.None
	if c, ok := v.consumers.Load(path.Base(request.URL.Path)); ok {
		for _, at := range []moment{begins, writes, commits} {
			fault = c.(*consumer).intercept(at)
		}
	}
	switch fault {
	case commitproxy.CutBefore:
		panic(http.ErrAbortHandler)
	case commitproxy.DeliverLate:
		release := make(chan struct{})
		v.mu.Lock()
		v.late = append(v.late, release)
		v.mu.Unlock()
		v.world.deliveries.Go(func() {
			<-release
			_, _ = v.take(partition, batch) // the answer is lost
		})
		panic(http.ErrAbortHandler)
	}
	rejected, err := v.take(partition, batch)
	switch {
	case fault == commitproxy.LoseReply:
		panic(http.ErrAbortHandler)
	case err != nil: // the database is down
		answer.WriteHeader(http.StatusServiceUnavailable)
	default:
		answer.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(answer).Encode(map[string]any{"failed": rejected}) // a lost answer is one of the faults
	}
}

// deliver lets the requests that are held back take effect.
func (v *receiver) deliver() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, release := range v.late {
		close(release)
	}
	v.late = nil
}

// rejection is an event that the receiver does not take.
type rejection struct {
	Index int    `json:"index"`
	Error string `json:"error"`
}

// inOrder looks at the numbers of a batch. They ascend, and none is left out among those that are
// new. Known events may be left out: of a request whose answer names some that have failed, only
// those are posted again, alone or before new ones. The caller holds mu.
func (v *receiver) inOrder(partition string, batch []posted) {
	highest, known := v.highest[partition]
	if !known {
		highest = -1
	}
	for i, e := range batch {
		if e.ID > highest+1 {
			v.find(partition, "event %d is posted at index %d, without event %d, which has never come", e.ID, i, highest+1)
		}
		if i > 0 && e.ID <= batch[i-1].ID {
			v.find(partition, "event %d is posted at index %d after event %d", e.ID, i, batch[i-1].ID)
		}
		highest = max(highest, e.ID)
	}
}

// take stores a batch, in one statement.
func (v *receiver) take(partition string, batch []posted) (rejected []rejection, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.inOrder(partition, batch)
	rows := []flightRow{}
	for i, e := range batch {
		if e.Data.Delay == nil {
			rejected = append(rejected, rejection{i, "has no delay"})
			continue
		}
		if !v.world.Forgets || e.ID%1000 != 17 {
			rows = append(rows, flightRow{partition, e.ID, *e.Data.Delay, e.Data.Distance, e.Data.Origin})
		}
	}
	text, err := json.Marshal(rows)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := v.world.db.ExecContext(ctx, `INSERT INTO flights
		SELECT * FROM jsonb_to_recordset($1::jsonb) AS r (hub_partition text, sequence_number bigint, delay bigint, distance bigint, origin text)
		ON CONFLICT DO NOTHING`, string(text)); err != nil {
		return nil, err
	}
	v.requests++
	highest, known := v.highest[partition]
	for _, e := range batch {
		if known && e.ID <= highest {
			v.repeated++
		}
	}
	v.highest[partition] = max(highest, batch[len(batch)-1].ID)
	return rejected, nil
}

type flightRow struct {
	Partition string `json:"hub_partition"`
	Sequence  int64  `json:"sequence_number"`
	Delay     int64  `json:"delay"`
	Distance  int64  `json:"distance"`
	Origin    string `json:"origin"`
}

// find adds a finding, unless the partition has one. The caller holds mu.
func (v *receiver) find(partition, format string, args ...any) {
	if !v.finding[partition] {
		v.finding[partition] = true
		v.findings = append(v.findings, "partition "+partition+": "+fmt.Sprintf(format, args...))
	}
}

// report adds what the receiver has seen.
func (v *receiver) report(r *Report) {
	v.mu.Lock()
	defer v.mu.Unlock()
	r.detail("requests that the receiver has taken", "%d", v.requests)
	r.detail("events received again", "%d", v.repeated)
	for _, f := range v.findings {
		r.breach("%s", f)
	}
}
