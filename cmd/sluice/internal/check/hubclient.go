package check

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"

	"github.com/sluice-go/sluice/internal/websocketdial"
)

// rawHub is an event hub as Azure's SDK shows it, without what Sluice's driver adds. The checks
// compare the two.
type rawHub interface {
	describe(ctx context.Context) (hubProperties, error)
	runtime(ctx context.Context, partition string) (runtimeInfo, error)
	// read opens a receiver at a position and returns up to want events. It ends when nothing came
	// for idle.
	read(ctx context.Context, partition string, from azeventhubs.StartPosition, want int, idle time.Duration) ([]event, error)
	// send sends the bodies as one batch, to a partition or by a key.
	send(ctx context.Context, partition, key string, bodies [][]byte) error
	// maxBatch is the largest batch, in bytes, that the hub takes. It opens a link for sending.
	maxBatch(ctx context.Context) (uint64, error)
	close(ctx context.Context)
}

type hubProperties struct {
	created    time.Time
	partitions []string
	geo        bool
}

// runtimeInfo is what the hub says about a partition.
type runtimeInfo struct {
	first, last int64
	empty       bool
}

type event struct {
	partition string
	sequence  int64
	offset    string
	enqueued  time.Time
	body      []byte
}

var earliest = azeventhubs.StartPosition{Earliest: to.Ptr(true)}

// startAfter is the position after an event.
func startAfter(sequence int64) azeventhubs.StartPosition {
	if sequence < 0 {
		return earliest
	}
	return azeventhubs.StartPosition{SequenceNumber: &sequence}
}

// HubAddress is how to connect to a hub.
type HubAddress struct {
	ConnectionString string // or
	Host             string // of the namespace, with
	Credential       azcore.TokenCredential
	Hub              string
	ConsumerGroup    string
	TLSConfig        *tls.Config
	// OverWebSocket connects over WebSockets, through Proxy if that is set.
	OverWebSocket bool
	Proxy         *url.URL
}

// sdkHub is a rawHub over Azure's SDK, without its retries.
type sdkHub struct {
	address  HubAddress
	producer *azeventhubs.ProducerClient
}

func dialHub(a HubAddress) (*sdkHub, error) {
	h := &sdkHub{address: a}
	options := &azeventhubs.ProducerClientOptions{ApplicationID: "sluice-check", RetryOptions: azeventhubs.RetryOptions{MaxRetries: -1}, TLSConfig: a.TLSConfig, NewWebSocketConn: a.webSocket()}
	var err error
	if a.Credential != nil {
		h.producer, err = azeventhubs.NewProducerClient(a.Host, a.Hub, a.Credential, options)
	} else {
		h.producer, err = azeventhubs.NewProducerClientFromConnectionString(a.ConnectionString, a.entity(), options)
	}
	if err != nil {
		return nil, errors.New("hub: the client of Azure's SDK does not accept the connection string or the namespace: copy it again from the portal")
	}
	return h, nil
}

func (a HubAddress) webSocket() func(context.Context, azeventhubs.WebSocketConnParams) (net.Conn, error) {
	if !a.OverWebSocket {
		return nil
	}
	return func(ctx context.Context, params azeventhubs.WebSocketConnParams) (net.Conn, error) {
		return websocketdial.Dial(ctx, params.Host, a.TLSConfig, a.Proxy)
	}
}

// entity is the hub's name for the SDK, which takes it in one place only.
func (a HubAddress) entity() string {
	if props, err := azeventhubs.ParseConnectionString(a.ConnectionString); err == nil && props.EntityPath != nil {
		return ""
	}
	return a.Hub
}

func (h *sdkHub) consumer() (*azeventhubs.ConsumerClient, error) {
	a := h.address
	options := &azeventhubs.ConsumerClientOptions{ApplicationID: "sluice-check", RetryOptions: azeventhubs.RetryOptions{MaxRetries: -1}, TLSConfig: a.TLSConfig, NewWebSocketConn: a.webSocket()}
	if a.Credential != nil {
		return azeventhubs.NewConsumerClient(a.Host, a.Hub, a.ConsumerGroup, a.Credential, options)
	}
	return azeventhubs.NewConsumerClientFromConnectionString(a.ConnectionString, a.entity(), a.ConsumerGroup, options)
}

func (h *sdkHub) describe(ctx context.Context) (hubProperties, error) {
	p, err := h.producer.GetEventHubProperties(ctx, nil)
	return hubProperties{p.CreatedOn, p.PartitionIDs, p.GeoReplicationEnabled}, err
}

func (h *sdkHub) runtime(ctx context.Context, partition string) (runtimeInfo, error) {
	p, err := h.producer.GetPartitionProperties(ctx, partition, nil)
	return runtimeInfo{p.BeginningSequenceNumber, p.LastEnqueuedSequenceNumber, p.IsEmpty}, err
}

func (h *sdkHub) read(ctx context.Context, partition string, from azeventhubs.StartPosition, want int, idle time.Duration) ([]event, error) {
	client, err := h.consumer()
	if err != nil {
		return nil, err
	}
	defer client.Close(context.WithoutCancel(ctx))
	// This opens the connection, so that the first wait below is for the link and its events only.
	if _, err := client.GetEventHubProperties(ctx, nil); err != nil {
		return nil, err
	}
	receiver, err := client.NewPartitionClient(partition, &azeventhubs.PartitionClientOptions{StartPosition: from})
	if err != nil {
		return nil, err
	}
	defer receiver.Close(context.WithoutCancel(ctx))
	var list []event
	wait := 2 * idle // the first time with the opening of the link
	for len(list) < want {
		limited, cancel := context.WithTimeout(ctx, wait)
		got, err := receiver.ReceiveEvents(limited, min(want-len(list), 1000), nil)
		quiet := inVain(ctx, limited, err)
		cancel()
		wait = idle
		for _, e := range got {
			list = append(list, convert(partition, e))
		}
		if quiet {
			break
		}
		if err != nil {
			return list, err
		}
	}
	return list, nil
}

// inVain reports whether a read ended because nothing came in its time. The SDK looks at the
// deadline, which may have passed before the context has ended.
func inVain(ctx, limited context.Context, err error) bool {
	return ctx.Err() == nil && (limited.Err() != nil || errors.Is(err, context.DeadlineExceeded))
}

func convert(partition string, in *azeventhubs.ReceivedEventData) event {
	e := event{partition: partition, sequence: in.SequenceNumber, offset: in.Offset, body: in.Body}
	if in.EnqueuedTime != nil {
		e.enqueued = *in.EnqueuedTime
	}
	return e
}

func (h *sdkHub) send(ctx context.Context, partition, key string, bodies [][]byte) error {
	options := &azeventhubs.EventDataBatchOptions{}
	if partition != "" {
		options.PartitionID = &partition
	}
	if key != "" {
		options.PartitionKey = &key
	}
	batch, err := h.producer.NewEventDataBatch(ctx, options)
	if err != nil {
		return err
	}
	for _, body := range bodies {
		if err := batch.AddEventData(&azeventhubs.EventData{Body: body}, nil); err != nil {
			return fmt.Errorf("event of %d bytes: %w", len(body), err)
		}
	}
	return h.producer.SendEventDataBatch(ctx, batch, nil)
}

// maxBatch tries how large a batch the SDK accepts, which asks the link for its limit.
func (h *sdkHub) maxBatch(ctx context.Context) (uint64, error) {
	batch, err := h.producer.NewEventDataBatch(ctx, nil)
	if err != nil {
		return 0, err
	}
	// The SDK has no method for the limit. A batch takes an event of exactly that size.
	low, high := 0, 32<<20
	for low < high {
		middle := (low + high + 1) / 2
		switch err := batch.AddEventData(&azeventhubs.EventData{Body: make([]byte, middle)}, nil); {
		case err == nil:
			low = middle
			if batch, err = h.producer.NewEventDataBatch(ctx, nil); err != nil {
				return 0, err
			}
		case errors.Is(err, azeventhubs.ErrEventDataTooLarge):
			high = middle - 1
		default:
			return 0, err
		}
	}
	return uint64(low), nil
}

func (h *sdkHub) close(ctx context.Context) { _ = h.producer.Close(ctx) }
