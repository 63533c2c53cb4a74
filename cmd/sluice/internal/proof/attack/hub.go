//go:build linux

package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/cmd/sluice/internal/history"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/eventhub"
	"github.com/sluice-go/sluice/internal/proof/freeport"
	"github.com/sluice-go/sluice/internal/proof/tcplink"
)

// EventHubs is an event hub of the emulator.
var EventHubs = &Source{
	Name:   "Event Hubs (the emulator)",
	faults: []Fault{KillHub},
	make:   func(w *world) source { return &hub{world: w, load: &load{records: w.Records}} },
}

// hub is an event hub, to which `sluice send` sends records.
type hub struct {
	world   *world
	service *service
	addr    string
	load    *load
	sender  *route
	sends   int
}

func (h *hub) start(ctx context.Context) error {
	w := h.world
	free, err := freeport.Listen()
	if err != nil {
		return err
	}
	h.addr = free.Addr().String()
	free.Close()
	h.service = &service{start: func(life int) (*process, error) {
		args := []string{w.Binary, "emulator", "serve", "--listen", h.addr,
			"--data", filepath.Join(w.Dir, "hub"), "--hub", fmt.Sprintf("%s=%d", hubName, partitions), "--key", keyName + "=" + w.secrets.key}
		if asAzure(life) {
			args = append(args, "--as-azure=all", fmt.Sprintf("--as-azure-seed=%d", life))
		}
		return launch(w.Dir, fmt.Sprintf("hub-%04d", life), nil, args...)
	}}
	if err := h.service.run(); err != nil {
		return err
	}
	if err := h.ready(ctx); err != nil {
		return err
	}
	h.sender, err = w.newRoute("send", false)
	return err
}

// asAzure reports whether the hub is as strict and as inexact as Azure in a life: in every
// other one.
func asAzure(life int) bool { return life%2 == 0 }

// ready waits until the hub accepts connections.
func (h *hub) ready(ctx context.Context) error {
	var p *process
	if !await(ctx, time.Minute, func() bool { p, _ = h.service.now(); return strings.HasPrefix(p.stdout(), "ready ") }) {
		return fmt.Errorf("the hub was not ready within a minute: %s", tail(p.stderr()))
	}
	return nil
}

func (h *hub) route() ([]*tcplink.Link, error) {
	link, err := tcplink.New(net.JoinHostPort(h.world.host, "0"), h.addr)
	if err != nil {
		return nil, err
	}
	return []*tcplink.Link{link}, nil
}

func (h *hub) env(links []*tcplink.Link) []string {
	return []string{"EVENTHUB_CONNECTION_STRING=" + h.connection(links[0].Addr())}
}

func (h *hub) connection(addr string) string {
	return "Endpoint=sb://" + addr + ";SharedAccessKeyName=" + keyName + ";SharedAccessKey=" + h.world.secrets.key + ";UseDevelopmentEmulator=true"
}

func (h *hub) reset() { h.sender.log[0].Reset() }

// strike kills the hub.
func (h *hub) strike(ctx context.Context, _ Fault, _ *rand.Rand) error { return h.kill(ctx) }

func (h *hub) kill(ctx context.Context) error {
	p, life := h.service.now()
	p.end(syscall.SIGKILL)
	within, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := h.service.waitForLife(within, life); err != nil {
		return err
	}
	return h.ready(within)
}

func (h *hub) acknowledged() int64 { return h.load.acknowledged() }

// send sends records, a tenth of the plan's at once and then at its rate, until
// the plan's are sent and enough is closed. A file that was not acknowledged
// whole is sent again: to the hub those are other events.
func (h *hub) send(ctx context.Context, enough <-chan struct{}) error {
	plan := &h.world.Plan
	if err := h.sendFile(ctx, int64(plan.Events/10), 0); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-enough:
			left := int64(plan.Events) - h.load.acknowledged()
			if left <= 0 {
				return nil
			}
			if err := h.sendFile(ctx, left, 0); err != nil {
				return err
			}
		default:
			// About two seconds of records.
			if err := h.sendFile(ctx, int64(2*plan.Rate), plan.Rate); err != nil {
				return err
			}
		}
	}
}

// sendFile sends the next count records by `sluice send` until all of them are
// acknowledged.
func (h *hub) sendFile(ctx context.Context, count int64, rate int) error {
	w := h.world
	path := filepath.Join(w.Dir, "records.ndjson")
	if err := h.load.file(path, h.load.acknowledged(), count); err != nil {
		return err
	}
	args := []string{w.Binary, "send", "--hub", hubName}
	if rate > 0 {
		args = append(args, "--rate", fmt.Sprint(rate))
	}
	for try := 0; ctx.Err() == nil; try++ {
		h.sends++
		p, err := launch(w.Dir, fmt.Sprintf("send-%05d", h.sends), w.env(h.sender), append(args, path)...)
		if err != nil {
			return err
		}
		if err := p.wait(ctx); err != nil {
			p.end(os.Kill)
			<-p.done
			return nil
		}
		switch code := p.code(); {
		case code == 0:
			h.load.advance(count)
			return nil
		case code != 1 || try > 100:
			return fmt.Errorf("sluice send: exit code %d: %s", code, tail(p.stderr()))
		}
		sleep(ctx, 200*time.Millisecond)
	}
	return nil
}

func (h *hub) misconfigured(ctx context.Context, database string) {
	w := h.world
	key, good := w.secrets.key, w.source.env(w.clean.log)[0]
	addr := w.clean.log[0].Addr()
	w.runMisconfigured(ctx, map[string][]string{
		"no-endpoint":     {"EVENTHUB_CONNECTION_STRING=SharedAccessKeyName=attack;SharedAccessKey=" + key, database},
		"misspelt-part":   {"EVENTHUB_CONNECTION_STRING=Endpoint=sb://" + addr + ";SharedAccesKey=" + key, database},
		"key-as-endpoint": {"EVENTHUB_CONNECTION_STRING=Endpoint=" + key + ";SharedAccessKeyName=attack;SharedAccessKey=" + key, database},
		"wrong-key-name":  {"EVENTHUB_CONNECTION_STRING=Endpoint=sb://" + addr + ";SharedAccessKeyName=other;SharedAccessKey=" + key + ";UseDevelopmentEmulator=true", database},
		"mixed-up":        {"EVENTHUB_CONNECTION_STRING=" + database, "DATABASE_URL=" + good},
	})
	w.runFailing(ctx, "send", []string{good}, "send", "--hub", "nothing", os.DevNull)
	w.runFailing(ctx, "key", nil, "emulator", "serve", "--hub", "h=1", "--key", "name="+key+"?")
}

// settle has the hub say exactly what it holds: it starts it again if it is as on Azure.
func (h *hub) settle(ctx context.Context) error {
	if _, life := h.service.now(); !asAzure(life) {
		return nil
	}
	return h.kill(ctx)
}

func (h *hub) compare(ctx context.Context, done *effects, check *history.Checker, r *Report) error {
	source, err := eventhub.New(h.connection(h.addr), hubName, nil)
	if err != nil {
		return err
	}
	defer source.Close(context.WithoutCancel(ctx))
	seen := make([]bool, h.load.acknowledged())
	if r.Events, err = done.compareHub(ctx, source, partitions, check, seen, r.breach); err != nil {
		return err
	}
	for n, ok := range seen {
		if !ok {
			r.breach("record %d was acknowledged but is not in the hub", n)
		}
	}
	return nil
}

// compareHub reads a hub, adds its events to a checker, marks the numbers of the
// records that it has in seen, and checks that each row agrees with its event. It
// returns the number of events.
func (e *effects) compareHub(ctx context.Context, source *eventhub.Source, partitions int, check *history.Checker, seen []bool, find func(string, ...any)) (events int64, err error) {
	for p := range partitions {
		id := fmt.Sprint(p)
		b, err := source.Bounds(ctx, id)
		if err != nil {
			return 0, err
		}
		if b.First != 0 && b.Last.Sequence >= 0 {
			find("partition %s of the hub begins with event %d, want 0", id, b.First)
		}
		events += b.Last.Sequence + 1
		check.Add(history.Record{Kind: history.Sent, Partition: id, From: -1, To: b.Last.Sequence})
		agree := e.partition(id, find)
		err = readAll(ctx, source, id, b.Last.Sequence, func(ev *sluice.Event) {
			if n, ok := agree(ev.Sequence, ev.Body); ok && n < int64(len(seen)) {
				seen[n] = true
			}
		})
		if err != nil {
			return 0, fmt.Errorf("read partition %s: %w", id, err)
		}
	}
	return events, nil
}

// partition returns a function that checks that the effects of an event agree with its body, and
// returns the number of its record.
func (e *effects) partition(id string, find func(string, ...any)) func(sequence int64, body []byte) (n int64, ok bool) {
	rows := make(map[int64]mapped, len(e.rows[id]))
	for _, m := range e.rows[id] {
		rows[m.sequence] = m
	}
	deadLetters := make(map[int64]bool, len(e.deadLetters[id]))
	for _, sequence := range e.deadLetters[id] {
		deadLetters[sequence] = true
	}
	return func(sequence int64, body []byte) (int64, bool) {
		var f flight
		if err := json.Unmarshal(body, &f); err != nil {
			find("partition %s: event %d is not the JSON that was sent: %q", id, sequence, body)
			return 0, false
		}
		row, has := rows[sequence]
		switch {
		case f.Delay == nil && has:
			find("partition %s: event %d has no delay and cannot be mapped, but there is a row", id, sequence)
		case f.Delay != nil && has && row != (mapped{sequence, *f.Delay, f.Distance, f.Origin}):
			find("partition %s: event %d is %s, but its row is %v", id, sequence, body, row)
		case f.Delay != nil && deadLetters[sequence]:
			find("partition %s: event %d can be mapped, but is a dead letter: %s", id, sequence, body)
		}
		return f.N, true
	}
}

// readAll calls see with all events of a partition up to last.
func readAll(ctx context.Context, source *eventhub.Source, partition string, last int64, see func(*sluice.Event)) (err error) {
	if last < 0 {
		return nil
	}
	reader, err := source.Open(ctx, partition, driver.Origin, 1<<40)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, reader.Close(ctx)) }()
	for next := int64(0); next <= last; {
		events, err := reader.Read(ctx, 1000)
		if err != nil {
			return err
		}
		for _, e := range events {
			see(e)
			next = e.Sequence + 1
		}
	}
	return nil
}

func (h *hub) stop(ctx context.Context, r *Report) {
	_, r.SourceStarts = h.service.now()
	if err := h.service.shutdown(ctx); err != nil {
		r.find("hub: %v", err)
	}
}

func (h *hub) close() error {
	if h.service != nil {
		h.service.kill()
	}
	h.sender.close()
	return nil
}
