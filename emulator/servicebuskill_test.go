package emulator_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-go/sluice/emulator"
)

// fate is the last acknowledgement that a client got for a message.
type fate struct {
	accepted, settling, completed, buried, abandoned bool
}

// fates are those of all messages. Its methods may be called concurrently.
type fates struct {
	mu     sync.Mutex
	byName map[string]*fate
	more   chan struct{} // closed when enough has happened
	left   int
}

func (f *fates) change(name string, change func(*fate)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byName[name] == nil {
		f.byName[name] = &fate{}
	}
	change(f.byName[name])
}

// progress counts what the test waits for.
func (f *fates) progress() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left--; f.left == 0 {
		close(f.more)
	}
}

// A Service Bus that is killed while messages are sent and settled has all messages
// that it acknowledged, none whose completion it acknowledged, and every dead letter.
func TestBusKill(t *testing.T) {
	dir := t.TempDir()
	all := &fates{byName: make(map[string]*fate)}
	for round := range 4 {
		connection, kill := child(t, busVariable, dir)
		all.more, all.left = make(chan struct{}), 150+40*round
		c := busClient(t, connection)
		ctx, stop := context.WithCancel(testContext(t))
		var wg sync.WaitGroup
		for s := range 3 {
			sender, r := busSender(t, c, "orders"), busReceiver(t, c, "orders", nil)
			wg.Go(func() { sendUntilKilled(ctx, sender, all, fmt.Sprintf("%d/%d", round, s)) })
			wg.Go(func() { settleUntilKilled(ctx, r, all) })
		}
		select {
		case <-all.more:
		case <-ctx.Done():
			t.Error("the clients don't get on")
		}
		kill()
		stop()
		wg.Wait()
		c.Close(context.Background())
	}

	srv := startBus(t, emulator.ServiceBusQueue{}, &emulator.ServiceBusConfig{Dir: dir})
	c := busClient(t, srv.ConnectionString())
	stored := map[string]string{}
	deliveries := map[string]uint32{}
	for place, options := range map[string]*azservicebus.ReceiverOptions{"queue": nil, "dead letters": deadLetters} {
		r := busReceiver(t, c, "orders", options)
		for {
			ms, err := r.PeekMessages(testContext(t), 500, nil)
			must(t, err)
			if len(ms) == 0 {
				break
			}
			for _, m := range ms {
				name := string(m.Body)
				if stored[name] != "" || all.byName[name] == nil {
					t.Errorf("message %q is in the %s, a repeat: %q, sent: %t", name, place, stored[name], all.byName[name] != nil)
				}
				stored[name], deliveries[name] = place, m.DeliveryCount-1 // what the client adds for this one
			}
		}
	}
	counts := map[string]int{}
	for name, f := range all.byName {
		switch place := stored[name]; {
		case f.completed && place != "":
			t.Errorf("message %q was completed, and is in the %s", name, place)
		case f.buried && place != "dead letters":
			t.Errorf("message %q became a dead letter, and is in the %q", name, place)
		case f.accepted && !f.settling && place != "queue":
			t.Errorf("message %q was accepted, and is in the %q", name, place)
		case f.abandoned && !f.completed && place != "" && deliveries[name] == 0:
			t.Errorf("message %q was abandoned, and its deliveries aren't counted", name)
		}
		for what, is := range map[string]bool{"sent": true, "accepted": f.accepted, "completed": f.completed, "buried": f.buried, "abandoned": f.abandoned, "stored": stored[name] != ""} {
			if is {
				counts[what]++
			}
		}
	}
	if counts["completed"] == 0 || counts["buried"] == 0 || counts["abandoned"] == 0 || counts["stored"] == 0 {
		t.Errorf("too little happened")
	}
	t.Log(counts)
}

func sendUntilKilled(ctx context.Context, s *azservicebus.Sender, all *fates, name string) {
	for i := 0; ctx.Err() == nil; i++ {
		batch, err := s.NewMessageBatch(ctx, nil)
		var names []string
		for j := 0; j < 3 && err == nil; j++ {
			names = append(names, fmt.Sprintf("%s/%d/%d", name, i, j))
			all.change(names[j], func(*fate) {})
			err = batch.AddMessage(&azservicebus.Message{Body: []byte(names[j])}, nil)
		}
		if err == nil {
			err = s.SendMessageBatch(ctx, batch, nil)
		}
		if err != nil {
			return // killed
		}
		for _, n := range names {
			all.change(n, func(f *fate) { f.accepted = true })
		}
	}
}

func settleUntilKilled(ctx context.Context, r *azservicebus.Receiver, all *fates) {
	for n := 0; ctx.Err() == nil; {
		ms, err := r.ReceiveMessages(ctx, 5, nil)
		if err != nil {
			return // killed
		}
		for _, m := range ms {
			name := string(m.Body)
			n++
			if n%5 == 0 {
				if r.AbandonMessage(ctx, m, nil) == nil {
					all.change(name, func(f *fate) { f.abandoned = true })
				}
				continue
			}
			all.change(name, func(f *fate) { f.settling = true })
			if n%7 == 0 {
				if r.DeadLetterMessage(ctx, m, nil) == nil {
					all.change(name, func(f *fate) { f.buried = true })
				}
			} else if r.CompleteMessage(ctx, m, nil) == nil {
				all.change(name, func(f *fate) { f.completed = true })
			}
			all.progress()
		}
	}
}

// What a namespace with a directory is started with is created once, and keeps its settings.
func TestBusReopen(t *testing.T) {
	dir := t.TempDir()
	open := func(deliveries int) *emulator.ServiceBus {
		srv, err := emulator.StartServiceBus([]emulator.ServiceBusQueue{{Name: "orders", MaxDeliveries: deliveries}},
			[]emulator.ServiceBusTopic{{Name: "news", Subscriptions: []emulator.ServiceBusQueue{{Name: "one"}}}}, &emulator.ServiceBusConfig{Dir: dir, AdminListen: "127.0.0.1:0"})
		must(t, err)
		return srv
	}
	srv := open(3)
	if second, err := emulator.StartServiceBus(nil, nil, &emulator.ServiceBusConfig{Dir: dir}); err == nil {
		t.Error(second.Close(), "two namespaces use one directory")
	}
	sendText(t, busSender(t, busClient(t, srv.ConnectionString()), "news"), "a")
	must(t, srv.Close())
	srv = open(7)
	q, err := busAdmin(t, srv, srv.AdminConnectionString()).GetQueue(testContext(t), "orders", nil)
	if err != nil || *q.MaxDeliveryCount != 3 {
		t.Errorf("queue %+v: %v", q, err)
	}
	receiveText(t, busReceiver(t, busClient(t, srv.ConnectionString()), "news/one", nil), "a")
	must(t, srv.Close())
}
