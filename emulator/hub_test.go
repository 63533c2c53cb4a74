package emulator_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice/emulator"
)

func TestPartitionKeys(t *testing.T) {
	srv := start(t, one("h", 4), nil)
	p := producer(t, srv, "h")
	for i := range 40 {
		send(t, p, &azeventhubs.EventDataBatchOptions{PartitionKey: to.Ptr(fmt.Sprint("key", i%8))}, fmt.Sprint(i))
	}
	partitionOf, spread := map[string]string{}, map[string]bool{}
	seen := 0
	for _, id := range []string{"0", "1", "2", "3"} {
		props, err := p.GetPartitionProperties(testContext(t), id, nil)
		if err != nil {
			t.Fatal(err)
		}
		n := int(props.LastEnqueuedSequenceNumber + 1)
		if n == 0 {
			continue
		}
		spread[id] = true
		last := map[string]int{}
		for _, e := range receive(t, partition(t, consumer(t, srv, "h", "$Default", ""), id, &azeventhubs.PartitionClientOptions{StartPosition: earliest}), n) {
			if e.PartitionKey == nil {
				t.Fatalf("event %q has no partition key", e.Body)
			}
			key := *e.PartitionKey
			if was, ok := partitionOf[key]; ok && was != id {
				t.Errorf("%s is in partitions %s and %s", key, was, id)
			}
			partitionOf[key] = id
			var i int
			fmt.Sscan(string(e.Body), &i)
			if fmt.Sprint("key", i%8) != key || i < last[key] {
				t.Errorf("event %d has key %s, after event %d", i, key, last[key])
			}
			last[key] = i
			seen++
		}
	}
	if seen != 40 || len(partitionOf) != 8 || len(spread) < 2 {
		t.Errorf("%d events, %d keys, %d partitions", seen, len(partitionOf), len(spread))
	}
}

// Without key and partition, batches go round the partitions.
func TestRoundRobin(t *testing.T) {
	srv := start(t, one("h", 3), nil)
	p := producer(t, srv, "h")
	for range 9 {
		send(t, p, nil, "a", "b")
	}
	for _, id := range []string{"0", "1", "2"} {
		props, err := p.GetPartitionProperties(testContext(t), id, nil)
		if err != nil {
			t.Fatal(err)
		}
		if props.LastEnqueuedSequenceNumber != 5 {
			t.Errorf("partition %s: the last sequence number is %d", id, props.LastEnqueuedSequenceNumber)
		}
	}
}

func TestUnknownEntities(t *testing.T) {
	srv := start(t, []emulator.Hub{{Name: "h", Partitions: 2, ConsumerGroups: []string{"Known"}}}, nil)
	send(t, producer(t, srv, "h"), to0(), "x")
	ctx := testContext(t)
	sendTo := func(hub, id string) error {
		p := producer(t, srv, hub)
		_, err := p.NewEventDataBatch(ctx, &azeventhubs.EventDataBatchOptions{PartitionID: to.Ptr(id)})
		return err
	}
	readFrom := func(hub, group, id string) error {
		_, err := partition(t, consumer(t, srv, hub, group, ""), id, &azeventhubs.PartitionClientOptions{StartPosition: earliest}).ReceiveEvents(ctx, 1, nil)
		return err
	}
	_, hubErr := producer(t, srv, "none").GetEventHubProperties(ctx, nil)
	_, partErr := producer(t, srv, "h").GetPartitionProperties(ctx, "7", nil)
	for name, v := range map[string]struct {
		err  error
		want []string
	}{
		"send to a hub":             {sendTo("none", "0"), []string{"404", "none' could not be found"}},
		"send to a partition":       {sendTo("h", "2"), []string{"com.microsoft:argument-out-of-range", "between 0 and 1"}},
		"read from a hub":           {readFrom("none", "$Default", "0"), []string{"404", "none' could not be found"}},
		"read from a partition":     {readFrom("h", "$Default", "x"), []string{"com.microsoft:argument-out-of-range", "between 0 and 1"}},
		"read from a group":         {readFrom("h", "unknown", "0"), []string{"amqp:not-found", "h/ConsumerGroups/unknown"}},
		"properties of a hub":       {hubErr, []string{"404", "none' could not be found"}},
		"properties of a partition": {partErr, []string{"404", "'h~7' could not be found"}},
	} {
		if v.err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		wantText(t, v.err, v.want...)
	}
	for _, group := range []string{"$Default", "$default", "Known", "known"} {
		if err := readFrom("H", group, "0"); err != nil { // names are compared without regard to case
			t.Errorf("group %s: %v", group, err)
		}
	}
}

func TestStartErrors(t *testing.T) {
	for name, v := range map[string]struct {
		hubs []emulator.Hub
		cfg  emulator.Config
	}{
		"no partitions":      {hubs: []emulator.Hub{{Name: "h"}}},
		"no name":            {hubs: one("", 1)},
		"slash in the name":  {hubs: one("a/b", 1)},
		"twice":              {hubs: append(one("h", 1), one("H", 2)...)},
		"no listener":        {hubs: one("h", 1), cfg: emulator.Config{Listen: "-"}},
		"bad address":        {hubs: one("h", 1), cfg: emulator.Config{Listen: "127.0.0.1:http:80"}},
		"bad TLS address":    {hubs: one("h", 1), cfg: emulator.Config{TLSListen: "nowhere.invalid:1"}},
		"unwritable cert":    {hubs: one("h", 1), cfg: emulator.Config{TLSListen: "127.0.0.1:0", TLSCertOut: "/nonexistent/dir/cert.pem"}},
		"empty key":          {hubs: one("h", 1), cfg: emulator.Config{Keys: []emulator.Key{{Name: "root", Secret: ""}}}},
		"same key twice":     {hubs: one("h", 1), cfg: emulator.Config{Keys: []emulator.Key{{Name: "root", Secret: "canary"}, {Name: "root", Secret: "x"}}}},
		"unknown rights":     {hubs: one("h", 1), cfg: emulator.Config{Keys: []emulator.Key{{Name: "root", Secret: "canary", Rights: 8}}}},
		"key with semicolon": {hubs: one("h", 1), cfg: emulator.Config{Keys: []emulator.Key{{Name: "root", Secret: "canary;x"}}}},
	} {
		srv, err := emulator.Start(v.hubs, &v.cfg)
		if err == nil {
			srv.Close()
			t.Errorf("%s: started", name)
		} else if strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: the error holds the key: %v", name, err)
		}
	}
}

func TestRecreate(t *testing.T) {
	srv := start(t, one("h", 1), &emulator.Config{Dir: t.TempDir()})
	p := producer(t, srv, "h")
	send(t, p, to0(), numbered(0, 3)...)
	before, err := p.GetEventHubProperties(testContext(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	pc := partition(t, consumer(t, srv, "h", "$Default", ""), "0", &azeventhubs.PartitionClientOptions{StartPosition: earliest})
	receive(t, pc, 3)
	if err := srv.Recreate("h"); err != nil {
		t.Fatal(err)
	}
	// The library attaches a link again when it is detached, and asks for a position
	// that the new hub doesn't have.
	wantText(t, drainToError(t, pc), "The supplied sequence number '2' is invalid. The last sequence number in the system is '-1'")

	p = producer(t, srv, "h")
	after, err := p.GetEventHubProperties(testContext(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !after.CreatedOn.After(before.CreatedOn) {
		t.Errorf("created %v, before that %v", after.CreatedOn, before.CreatedOn)
	}
	send(t, p, to0(), "new")
	pc = partition(t, consumer(t, srv, "h", "$Default", ""), "0", &azeventhubs.PartitionClientOptions{StartPosition: earliest})
	if e := receive(t, pc, 1)[0]; string(e.Body) != "new" || e.SequenceNumber != 0 {
		t.Errorf("got %q, sequence number %d", e.Body, e.SequenceNumber)
	}
	if err := srv.Recreate("none"); err == nil {
		t.Error("an unknown hub was recreated")
	}
}

func TestTrim(t *testing.T) {
	srv := start(t, one("h", 1), nil)
	p := producer(t, srv, "h")
	send(t, p, to0(), numbered(0, 10)...)
	if err := srv.Trim("h", "0", 6); err != nil {
		t.Fatal(err)
	}
	props, err := p.GetPartitionProperties(testContext(t), "0", nil)
	if err != nil {
		t.Fatal(err)
	}
	if props.BeginningSequenceNumber != 6 || props.LastEnqueuedSequenceNumber != 9 || props.IsEmpty {
		t.Errorf("properties %+v", props)
	}
	for name, at := range map[string]azeventhubs.StartPosition{"earliest": earliest, "a position that is gone": {SequenceNumber: to.Ptr(int64(2))}} {
		pc := partition(t, consumer(t, srv, "h", "$Default", ""), "0", &azeventhubs.PartitionClientOptions{StartPosition: at})
		if e := receive(t, pc, 4)[0]; e.SequenceNumber != 6 {
			t.Errorf("%s: the first event is %d", name, e.SequenceNumber)
		}
	}
	if err := srv.Trim("none", "0", 1); err == nil {
		t.Error("an unknown hub was trimmed")
	}
	if err := srv.Trim("h", "1", 1); err == nil {
		t.Error("an unknown partition was trimmed")
	}
}

func TestRestart(t *testing.T) {
	dir := t.TempDir()
	cfg := &emulator.Config{Dir: dir}
	srv, err := emulator.Start(one("h", 2), cfg)
	if err != nil {
		t.Fatal(err)
	}
	p := producer(t, srv, "h")
	send(t, p, &azeventhubs.EventDataBatchOptions{PartitionKey: to.Ptr("k")}, numbered(0, 5)...)
	send(t, p, to0(), numbered(0, 5)...)
	old, err := p.GetEventHubProperties(testContext(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	read := func(srv *emulator.Server) (all []string) {
		for _, id := range []string{"0", "1"} {
			props, err := producer(t, srv, "h").GetPartitionProperties(testContext(t), id, nil)
			if err != nil {
				t.Fatal(err)
			}
			if props.IsEmpty {
				continue
			}
			pc := partition(t, consumer(t, srv, "h", "$Default", ""), id, &azeventhubs.PartitionClientOptions{StartPosition: earliest})
			for _, e := range receive(t, pc, int(props.LastEnqueuedSequenceNumber)+1) {
				key := ""
				if e.PartitionKey != nil {
					key = *e.PartitionKey
				}
				all = append(all, fmt.Sprintf("%s/%d/%s/%d/%s/%s", id, e.SequenceNumber, e.Offset, e.EnqueuedTime.UnixMilli(), key, e.Body))
			}
		}
		return all
	}
	want := read(srv)
	if len(want) != 10 {
		t.Fatalf("%d events", len(want))
	}
	if _, err := emulator.Start(one("h", 2), cfg); err == nil {
		t.Error("a second server uses the same directory")
	}
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := emulator.Start(one("h", 1), cfg); err == nil {
		t.Error("the hub has lost a partition")
	}

	again := start(t, one("h", 2), cfg)
	if got := read(again); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("after a restart\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	p = producer(t, again, "h")
	if props, err := p.GetEventHubProperties(testContext(t), nil); err != nil || !props.CreatedOn.Equal(old.CreatedOn) {
		t.Errorf("created %v, before the restart %v, %v", props.CreatedOn, old.CreatedOn, err)
	}
	before, err := p.GetPartitionProperties(testContext(t), "0", nil)
	if err != nil {
		t.Fatal(err)
	}
	send(t, p, to0(), "one more")
	after, err := p.GetPartitionProperties(testContext(t), "0", nil)
	if err != nil || after.LastEnqueuedSequenceNumber != before.LastEnqueuedSequenceNumber+1 || after.LastEnqueuedOffset == before.LastEnqueuedOffset {
		t.Errorf("before %+v, after %+v, %v", before, after, err)
	}
}

// Many senders share a link: every event arrives once, and each sender's in order.
func TestConcurrentSenders(t *testing.T) {
	srv := start(t, one("h", 2), &emulator.Config{Dir: t.TempDir()})
	p := producer(t, srv, "h")
	const senders, each = 20, 50
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			ctx := testContext(t)
			for i := range each {
				batch, err := p.NewEventDataBatch(ctx, &azeventhubs.EventDataBatchOptions{PartitionKey: to.Ptr(fmt.Sprint(s))})
				if err == nil {
					err = batch.AddEventData(&azeventhubs.EventData{Body: []byte(fmt.Sprintf("%d %d", s, i))}, nil)
				}
				if err == nil {
					err = p.SendEventDataBatch(ctx, batch, nil)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	next := make([]int, senders)
	total := 0
	for _, id := range []string{"0", "1"} {
		props, err := p.GetPartitionProperties(testContext(t), id, nil)
		if err != nil {
			t.Fatal(err)
		}
		n := int(props.LastEnqueuedSequenceNumber + 1)
		total += n
		for _, e := range receive(t, partition(t, consumer(t, srv, "h", "$Default", ""), id, &azeventhubs.PartitionClientOptions{StartPosition: earliest}), n) {
			var s, i int
			fmt.Sscan(string(e.Body), &s, &i)
			if i != next[s] {
				t.Fatalf("sender %d: event %d where %d belongs", s, i, next[s])
			}
			next[s]++
		}
	}
	if total != senders*each {
		t.Errorf("%d events, want %d", total, senders*each)
	}
}

// Clients get over a cut connection by themselves.
func TestDroppedConnections(t *testing.T) {
	srv := start(t, one("h", 1), nil)
	retry := azeventhubs.RetryOptions{MaxRetries: 10, RetryDelay: 1, MaxRetryDelay: 1e7}
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
	for i := range 3 {
		send(t, p, to0(), fmt.Sprint(i))
		var e *azeventhubs.ReceivedEventData
		for e == nil || e.SequenceNumber < int64(i) { // an unacknowledged event may be sent twice
			e = receive(t, pc, 1)[0]
		}
		srv.DropConnections()
	}
}

// Close ends the clients' calls, waits for all, and can be called again.
func TestClose(t *testing.T) {
	srv, err := emulator.Start(one("h", 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	send(t, producer(t, srv, "h"), to0(), "x")
	pc := reader(t, srv, "r", nil)
	got := make(chan error)
	go func() {
		_, err := pc.ReceiveEvents(testContext(t), 1, nil)
		got <- err
	}()
	for range 2 {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := <-got; err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a waiting reader got %v", err)
	}
}

func TestConnectionStrings(t *testing.T) {
	srv := start(t, one("h", 1), &emulator.Config{Listen: "0.0.0.0:0", TLSListen: "[::1]:0", Keys: []emulator.Key{
		{Name: "b", Secret: "a2V5Yg==", Rights: emulator.Listen}, {Name: "a", Secret: "a2V5YQ==", Rights: emulator.Manage}, {Name: "c", Secret: "a2V5Yw=="},
	}})
	port := srv.Addr()[strings.LastIndex(srv.Addr(), ":"):]
	if got, want := srv.ConnectionString(), "Endpoint=sb://localhost"+port+";SharedAccessKeyName=a;SharedAccessKey=a2V5YQ==;UseDevelopmentEmulator=true"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := srv.TLSConnectionString(), "Endpoint=sb://"+srv.TLSAddr()+";SharedAccessKeyName=a;SharedAccessKey=a2V5YQ=="; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	names := []string{srv.Addr(), srv.TLSAddr()}
	sort.Strings(names)
	if names[0] == "" || names[0] == names[1] {
		t.Errorf("addresses %q", names)
	}
}

// When Close returns, nothing of the server runs any more.
func TestCloseLeavesNothingRunning(t *testing.T) {
	srv, err := emulator.Start(one("h", 2), &emulator.Config{Dir: t.TempDir(), TLSListen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	send(t, producer(t, srv, "h"), to0(), "x")
	reader(t, srv, "r", nil)
	reader(t, srv, "s", nil)
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
	for ctx := testContext(t); ; runtime.Gosched() { // one who says that it is done may still have to return
		left := running()
		if len(left) == 0 {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("still running:\n%s", strings.Join(left, "\n\n"))
		}
	}
}

// running returns the stacks of what runs of servers.
func running() (left []string) {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for _, s := range strings.Split(string(stacks), "\n\n") {
		if strings.Contains(s, "sluice/internal/") || strings.Contains(s, "sluice/emulator.") {
			left = append(left, s)
		}
	}
	return left
}
