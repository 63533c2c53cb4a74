package emulator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/go-amqp"

	"github.com/sluice-go/sluice/emulator"
)

func inject(t *testing.T, srv *emulator.Server, f emulator.Fault) (id int) {
	t.Helper()
	id, err := srv.Faults().Add(f)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func hits(srv *emulator.Server, id int) int {
	for _, f := range srv.Faults().List() {
		if f.ID == id {
			return f.Hits
		}
	}
	return -1
}

// cut stands for the error of a dropped connection. The system's text for it depends on
// what was in transit.
const cut = "the connection is cut"

// wantFault checks that an error has the condition, or that it is the connection's end, for cut.
func wantFault(t *testing.T, what string, err error, want string) {
	t.Helper()
	var end *amqp.ConnError
	if want == cut && (!errors.As(err, &end) || end.RemoteErr != nil) || want != cut && string(condition(err)) != want {
		t.Errorf("%s: got %v, want %s", what, err, want)
	}
}

// stored returns how many events there are in partition 0.
func stored(t *testing.T, srv *emulator.Server) int64 {
	t.Helper()
	props, err := producer(t, srv, "h").GetPartitionProperties(testContext(t), "0", nil)
	if err != nil {
		t.Fatal(err)
	}
	return props.LastEnqueuedSequenceNumber + 1
}

// What a plain client sees of a fault when it sends, and what is stored then.
func TestFaultsOnSend(t *testing.T) {
	for _, v := range []struct {
		kind   emulator.FaultKind
		want   string
		stored int64 // events, when the one that is hit has been sent, and another one after it
		goesOn bool  // the link
	}{
		{emulator.FaultServerBusy, "com.microsoft:server-busy", 1, true},
		{emulator.FaultDetach, "amqp:link:detach-forced", 1, false},
		{emulator.FaultDrop, cut, 1, false},
		{emulator.FaultLoseAnswer, cut, 2, false},
	} {
		t.Run(string(v.kind), func(t *testing.T) {
			srv := start(t, append(one("h", 2), one("other", 1)...), nil)
			id := inject(t, srv, emulator.Fault{Kind: v.kind, On: emulator.OnSend, Hub: "H", Partition: "0", Times: 1})
			s := session(t, srv)
			event := &amqp.Message{Data: [][]byte{{1}}}
			for _, spared := range []string{"other", "h/Partitions/1"} {
				if err := sender(t, s, spared).Send(testContext(t), event, nil); err != nil {
					t.Fatalf("%s: %v", spared, err)
				}
			}
			l := sender(t, s, "h/Partitions/0")
			wantFault(t, "send", l.Send(testContext(t), event, nil), v.want)
			if n := hits(srv, id); n != 1 {
				t.Errorf("%d hits", n)
			}
			err := l.Send(testContext(t), event, nil)
			if (err == nil) != v.goesOn {
				t.Errorf("on the same link: %v", err)
			}
			if err != nil {
				if err := sender(t, session(t, srv), "h/Partitions/0").Send(testContext(t), event, nil); err != nil {
					t.Errorf("on another connection: %v", err)
				}
			}
			if n := stored(t, srv); n != v.stored {
				t.Errorf("%d events are stored, want %d", n, v.stored)
			}
		})
	}
}

// What a plain client sees of a fault when it receives. What was about to go out comes
// with the next link.
func TestFaultsOnReceive(t *testing.T) {
	for kind, want := range map[emulator.FaultKind]string{
		emulator.FaultServerBusy: "com.microsoft:server-busy", emulator.FaultDetach: "amqp:link:detach-forced", emulator.FaultDrop: cut,
	} {
		t.Run(string(kind), func(t *testing.T) {
			srv := start(t, one("h", 2), nil)
			send(t, producer(t, srv, "h"), to0(), numbered(0, 3)...)
			id := inject(t, srv, emulator.Fault{Kind: kind, On: emulator.OnReceive, Hub: "h", Partition: "0", Times: 1})
			_, err := receiver(t, session(t, srv), fromZero, nil).Receive(testContext(t), nil)
			wantFault(t, "receive", err, want)
			if n := hits(srv, id); n != 1 {
				t.Errorf("%d hits", n)
			}
			r := receiver(t, session(t, srv), fromZero, nil)
			for i := range 3 {
				if m := next(t, r); string(m.GetData()) != fmt.Sprintf("event %d", i) {
					t.Errorf("event %d is %q", i, m.GetData())
				}
			}
		})
	}
}

// What a plain client sees of a fault when it attaches a link; those of other
// partitions aren't concerned.
func TestFaultsOnAttach(t *testing.T) {
	for kind, want := range map[emulator.FaultKind]string{
		emulator.FaultServerBusy: "com.microsoft:server-busy", emulator.FaultDetach: "amqp:link:detach-forced", emulator.FaultDrop: cut,
	} {
		t.Run(string(kind), func(t *testing.T) {
			srv := start(t, one("h", 2), nil)
			id := inject(t, srv, emulator.Fault{Kind: kind, On: emulator.OnAttach, Hub: "h", Partition: "0", Times: 2})
			for name, attach := range map[string]func(*amqp.Session) error{
				"a sender":   func(s *amqp.Session) error { _, err := s.NewSender(testContext(t), "h/Partitions/0", nil); return err },
				"a receiver": func(s *amqp.Session) error { _, err := s.NewReceiver(testContext(t), fromZero, nil); return err },
			} {
				s := session(t, srv)
				sender(t, s, "h")
				sender(t, s, "h/Partitions/1")
				wantFault(t, name, attach(s), want)
			}
			if n := hits(srv, id); n != 2 {
				t.Errorf("%d hits", n)
			}
			sender(t, session(t, srv), "h/Partitions/0")
		})
	}
}

// The Event Hubs library gets over each kind of fault by itself, when it sends and when
// it receives.
func TestFaultsPass(t *testing.T) {
	retry := azeventhubs.RetryOptions{MaxRetries: 10, RetryDelay: 1, MaxRetryDelay: 1e7}
	for _, on := range []emulator.Operation{emulator.OnSend, emulator.OnReceive, emulator.OnAttach, emulator.OnManage} {
		for _, kind := range []emulator.FaultKind{emulator.FaultServerBusy, emulator.FaultDetach, emulator.FaultDrop, emulator.FaultDelay, emulator.FaultLoseAnswer} {
			fault := emulator.Fault{Kind: kind, On: on, Times: 2}
			switch {
			case kind == emulator.FaultLoseAnswer && on != emulator.OnSend:
				continue
			case kind == emulator.FaultDelay && on == emulator.OnAttach:
				continue
			case on == emulator.OnManage && (kind == emulator.FaultDetach || kind == emulator.FaultDrop):
				continue // version 2.0.2 doesn't get over that: it looks for the link to replace by the name of the other one of the pair
			case kind == emulator.FaultDelay:
				fault.Delay = 10 * time.Millisecond
			}
			t.Run(fmt.Sprint(kind, " on ", on), func(t *testing.T) {
				srv := start(t, one("h", 1), nil)
				id := inject(t, srv, fault)
				p, err := azeventhubs.NewProducerClientFromConnectionString(srv.ConnectionString(), "h", &azeventhubs.ProducerClientOptions{RetryOptions: retry})
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close(context.Background())
				c, err := azeventhubs.NewConsumerClientFromConnectionString(srv.ConnectionString(), "h", "$Default", &azeventhubs.ConsumerClientOptions{RetryOptions: retry})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close(context.Background())
				pc := partition(t, c, "0", &azeventhubs.PartitionClientOptions{StartPosition: earliest})
				began := time.Now()
				for i := range 3 {
					text := fmt.Sprint(i)
					send(t, p, to0(), text)
					for got := ""; got != text; { // an event may be there twice
						got = string(receive(t, pc, 1)[0].Body)
					}
					if _, err := p.GetPartitionProperties(testContext(t), "0", nil); err != nil {
						t.Error(err)
					}
				}
				if n := hits(srv, id); n != 2 {
					t.Errorf("%d hits, want 2", n)
				}
				if took := time.Since(began); took < 2*fault.Delay {
					t.Errorf("took %s, with two delays of %s", took, fault.Delay)
				}
			})
		}
	}
}

func TestFaultsOnManage(t *testing.T) {
	for kind, want := range map[emulator.FaultKind]string{
		emulator.FaultServerBusy: "", emulator.FaultDetach: "amqp:link:detach-forced", emulator.FaultDrop: cut,
	} {
		srv := start(t, one("h", 1), nil)
		id := inject(t, srv, emulator.Fault{Kind: kind, On: emulator.OnManage, Hub: "h", Times: 1})
		c := newRPC(t, session(t, srv), "$management")
		read := map[string]any{"operation": "READ", "type": "com.microsoft:eventhub", "name": "h"}
		if want == "" {
			if status, why, _ := c.call("replies", read, nil); status != 503 || !strings.Contains(why, "throttled") {
				t.Errorf("%s: %d %s", kind, status, why)
			}
			if status, why, _ := c.call("replies", read, nil); status != 200 {
				t.Errorf("after %s: %d %s", kind, status, why)
			}
			continue
		}
		to := "replies"
		request := &amqp.Message{Properties: &amqp.MessageProperties{MessageID: "id", ReplyTo: &to}, ApplicationProperties: read}
		_ = c.s.Send(testContext(t), request, nil) // accepted, or cut off
		_, err := c.r.Receive(testContext(t), nil)
		wantFault(t, string(kind), err, want)
		if err := c.s.Send(testContext(t), request, nil); err == nil {
			t.Errorf("%s: the link for requests goes on", kind)
		}
		if n := hits(srv, id); n != 1 {
			t.Errorf("%s: %d hits", kind, n)
		}
	}
}

// A delay delays its link only, and ends with the server.
func TestFaultDelay(t *testing.T) {
	srv, err := emulator.Start(one("h", 2), nil)
	if err != nil {
		t.Fatal(err)
	}
	inject(t, srv, emulator.Fault{Kind: emulator.FaultDelay, On: emulator.OnSend, Hub: "h", Partition: "0", Delay: time.Hour})
	s := session(t, srv)
	held := sender(t, s, "h/Partitions/0")
	outcome := make(chan error)
	go func() { outcome <- held.Send(testContext(t), &amqp.Message{Data: [][]byte{{1}}}, nil) }()
	for id := srv.Faults().List()[0].ID; hits(srv, id) == 0; {
		if err := sender(t, s, "h/Partitions/1").Send(testContext(t), &amqp.Message{Data: [][]byte{{1}}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
	if err := <-outcome; err == nil {
		t.Error("what was held up was accepted")
	}
}

// Faults are found by the oldest first, last as long as they were asked for, and can be removed.
func TestFaultList(t *testing.T) {
	srv := start(t, one("h", 1), nil)
	first := inject(t, srv, emulator.Fault{Kind: emulator.FaultServerBusy, On: emulator.OnSend, Times: 1})
	second := inject(t, srv, emulator.Fault{Kind: emulator.FaultServerBusy, On: emulator.OnSend})
	l := sender(t, session(t, srv), "h")
	try := func() error { return l.Send(testContext(t), &amqp.Message{Data: [][]byte{{1}}}, nil) }
	for range 3 {
		if try() == nil {
			t.Error("a message got through")
		}
	}
	if a, b := hits(srv, first), hits(srv, second); a != 1 || b != 2 {
		t.Errorf("%d and %d hits, want 1 and 2", a, b)
	}
	if !srv.Faults().Remove(second) || srv.Faults().Remove(second) {
		t.Error("a fault is removed once")
	}
	if err := try(); err != nil {
		t.Errorf("without faults: %v", err)
	}
	inject(t, srv, emulator.Fault{Kind: emulator.FaultServerBusy, On: emulator.OnSend})
	srv.Faults().Clear()
	if err := try(); err != nil || len(srv.Faults().List()) != 0 {
		t.Errorf("after clearing: %v, %v", err, srv.Faults().List())
	}
	for _, bad := range []emulator.Fault{
		{}, {Kind: "flood", On: emulator.OnSend}, {Kind: emulator.FaultDrop}, {Kind: emulator.FaultDrop, On: "sleep"},
		{Kind: emulator.FaultDelay, On: emulator.OnSend}, {Kind: emulator.FaultDrop, On: emulator.OnAttach, Delay: 1},
		{Kind: emulator.FaultLoseAnswer, On: emulator.OnReceive}, {Kind: emulator.FaultDrop, On: emulator.OnSend, Times: -1},
		{Kind: emulator.FaultDrop, On: emulator.OnSend, Delay: -1}, {Kind: emulator.FaultDrop, On: emulator.OnSend, Delay: 2 * time.Hour},
		{Kind: emulator.FaultDrop, On: emulator.OnSend, Partition: "0"},
	} {
		if _, err := srv.Faults().Add(bad); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
	for range 1000 {
		inject(t, srv, emulator.Fault{Kind: emulator.FaultDrop, On: emulator.OnManage})
	}
	if _, err := srv.Faults().Add(emulator.Fault{Kind: emulator.FaultDrop, On: emulator.OnManage}); err == nil {
		t.Error("1,001 faults were accepted")
	}
}

func TestDetachLinks(t *testing.T) {
	srv := start(t, append(one("h", 2), one("other", 1)...), nil)
	s := session(t, srv)
	links := map[string]*amqp.Receiver{}
	for _, address := range []string{"h/ConsumerGroups/a/Partitions/0", "h/ConsumerGroups/a/Partitions/1", "other/ConsumerGroups/a/Partitions/0"} {
		links[address] = receiver(t, s, address, nil)
	}
	newRPC(t, s, "$management")
	detached := func(address string) {
		t.Helper()
		_, err := links[address].Receive(testContext(t), nil)
		var detach *amqp.LinkError
		if !errors.As(err, &detach) || condition(err) != amqp.ErrCondDetachForced {
			t.Errorf("%s: %v", address, err)
		}
	}
	if n := srv.DetachLinks("H", "1"); n != 1 {
		t.Errorf("%d links, want 1", n)
	}
	detached("h/ConsumerGroups/a/Partitions/1")
	if n := srv.DetachLinks("other", ""); n != 1 {
		t.Errorf("%d links, want 1", n)
	}
	detached("other/ConsumerGroups/a/Partitions/0")
	sender(t, s, "h")
	if n := srv.DetachLinks("", ""); n != 2 {
		t.Errorf("%d links, want 2", n)
	}
	detached("h/ConsumerGroups/a/Partitions/0")
	if n := srv.DropConnections(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}
