package emulator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice/emulator"
)

// reader opens a reader on partition 0 and makes its link by reading the first event.
func reader(t *testing.T, srv *emulator.Server, name string, epoch *int64) *azeventhubs.PartitionClient {
	t.Helper()
	pc := partition(t, consumer(t, srv, "h", "$Default", name), "0", &azeventhubs.PartitionClientOptions{StartPosition: earliest, OwnerLevel: epoch})
	receive(t, pc, 1)
	return pc
}

// refused is the error that a reader gets.
func refused(t *testing.T, srv *emulator.Server, name string, epoch *int64) error {
	t.Helper()
	pc := partition(t, consumer(t, srv, "h", "$Default", name), "0", &azeventhubs.PartitionClientOptions{StartPosition: earliest, OwnerLevel: epoch})
	events, err := pc.ReceiveEvents(testContext(t), 1, nil)
	if err == nil {
		t.Fatalf("reader %s wasn't refused, but got %d events", name, len(events))
	}
	return err
}

// drainToError reads what was prefetched, until the error that ended the link.
func drainToError(t *testing.T, pc *azeventhubs.PartitionClient) error {
	t.Helper()
	ctx := testContext(t)
	for {
		if _, err := pc.ReceiveEvents(ctx, 1, nil); err != nil {
			return err
		}
	}
}

func wantText(t *testing.T, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("got %q, want %q", err, text)
		}
	}
}

// The texts are Azure's, as the Go library's own tests and users' reports quote them.
func TestEpochs(t *testing.T) {
	begin := func(t *testing.T) *emulator.Server {
		srv := start(t, one("h", 1), nil)
		send(t, producer(t, srv, "h"), to0(), numbered(0, 3)...)
		return srv
	}
	for name, v := range map[string]struct{ first, second int64 }{
		"a higher epoch steals":         {1, 2},
		"the same epoch steals too":     {2, 2},
		"the highest epoch there is":    {0, 1<<63 - 1},
		"an epoch above what fits a BE": {255, 256},
	} {
		t.Run(name, func(t *testing.T) {
			srv := begin(t)
			victim := reader(t, srv, "victim", &v.first)
			thief := reader(t, srv, "thief", &v.second)
			err := drainToError(t, victim)
			var e *azeventhubs.Error
			if !errors.As(err, &e) || e.Code != azeventhubs.ErrorCodeOwnershipLost {
				t.Errorf("the victim got %v", err)
			}
			wantText(t, err, "amqp:link:stolen", fmt.Sprintf("New receiver 'thief' with higher epoch of '%d' is created hence current receiver "+
				"'victim' with epoch '%d' is getting disconnected.", v.second, v.first))
			receive(t, thief, 2)
		})
	}
	t.Run("a lower epoch is refused", func(t *testing.T) {
		srv := begin(t)
		owner := reader(t, srv, "owner", to.Ptr(int64(5)))
		wantText(t, refused(t, srv, "late", to.Ptr(int64(4))), "amqp:link:stolen", "Receiver 'owner' with a higher epoch '5' already exists. "+
			"Receiver 'late' with epoch 4 cannot be created. Make sure you are creating receiver with increasing epoch value to ensure connectivity, "+
			"or ensure all old epoch receivers are closed or disconnected.")
		receive(t, owner, 2)
	})
	t.Run("a reader without epoch is refused", func(t *testing.T) {
		srv := begin(t)
		owner := reader(t, srv, "owner", to.Ptr(int64(0)))
		wantText(t, refused(t, srv, "plain", nil), "amqp:link:stolen", "At least one receiver for the endpoint is created with epoch of '0', and so "+
			"non-epoch receiver is not allowed.")
		receive(t, owner, 2)
	})
	t.Run("readers without epoch are evicted", func(t *testing.T) {
		srv := begin(t)
		one, two := reader(t, srv, "one", nil), reader(t, srv, "two", nil)
		reader(t, srv, "owner", to.Ptr(int64(0)))
		wantText(t, drainToError(t, one), "amqp:link:stolen", "'owner'", "'one'")
		wantText(t, drainToError(t, two), "amqp:link:stolen", "'owner'", "'two'")
	})
	t.Run("epochs are forgotten with their readers", func(t *testing.T) {
		srv := begin(t)
		owner := reader(t, srv, "owner", to.Ptr(int64(9)))
		if err := owner.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		reader(t, srv, "next", to.Ptr(int64(0)))
	})
	t.Run("a cut connection frees its epochs", func(t *testing.T) {
		srv := begin(t)
		reader(t, srv, "owner", to.Ptr(int64(9)))
		srv.DropConnections()
		for { // the server notices in its own time
			pc := partition(t, consumer(t, srv, "h", "$Default", "next"), "0", &azeventhubs.PartitionClientOptions{StartPosition: earliest, OwnerLevel: to.Ptr(int64(0))})
			_, err := pc.ReceiveEvents(testContext(t), 1, nil)
			if err == nil {
				break
			}
			wantText(t, err, "already exists")
		}
	})
	t.Run("consumer groups don't disturb each other", func(t *testing.T) {
		srv := begin(t)
		reader(t, srv, "owner", to.Ptr(int64(9)))
		pc := partition(t, consumer(t, srv, "h", "other", "x"), "0", &azeventhubs.PartitionClientOptions{StartPosition: earliest, OwnerLevel: to.Ptr(int64(0))})
		receive(t, pc, 3)
	})
	t.Run("a sixth reader without epoch is refused", func(t *testing.T) {
		srv := begin(t)
		for i := range 5 {
			reader(t, srv, fmt.Sprint("r", i), nil)
		}
		wantText(t, refused(t, srv, "sixth", nil), "amqp:resource-limit-exceeded", "Exceeded the maximum number of allowed receivers per partition in a "+
			"consumer group which is 5. List of connected receivers - r0, r1, r2, r3, r4.")
	})
}
