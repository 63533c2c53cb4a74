package demo

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-go/sluice/autoscale/source/servicebus"
	"github.com/sluice-go/sluice/emulator"
)

// sideLoad is a subscription of Service Bus beside the hub: orders that billing handles slowly.
type sideLoad struct {
	server    *emulator.ServiceBus
	client    *azservicebus.Client
	backlog   *servicebus.Source
	transport *http.Transport
}

const (
	ordersTopic, billingSubscription = "orders", "billing"
	// billing takes up to billingBatch messages at a time, and then rests.
	billingBatch = 8
	billingRests = 250 * time.Millisecond
)

func startSideLoad(log *slog.Logger) (s *sideLoad, err error) {
	s = &sideLoad{}
	s.server, err = emulator.StartServiceBus(nil,
		[]emulator.ServiceBusTopic{{Name: ordersTopic, Subscriptions: []emulator.ServiceBusQueue{{Name: billingSubscription}}}},
		&emulator.ServiceBusConfig{AdminListen: "127.0.0.1:0", Log: log})
	if err != nil {
		return nil, err
	}
	if s.client, err = azservicebus.NewClientFromConnectionString(s.server.ConnectionString(), nil); err != nil {
		return nil, errors.Join(err, s.Close(context.Background()))
	}
	s.transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.server.AdminCertPool(), MinVersion: tls.VersionTLS12}}
	s.backlog, err = servicebus.New(&servicebus.Config{Connection: s.server.AdminConnectionString(), Topic: ordersTopic, Subscription: billingSubscription,
		Client: &http.Client{Transport: s.transport}})
	if err != nil {
		return nil, errors.Join(err, s.Close(context.Background()))
	}
	return s, nil
}

// Close closes the namespace. Its messages are gone.
func (s *sideLoad) Close(ctx context.Context) error {
	var err error
	if s.client != nil {
		err = s.client.Close(ctx)
	}
	if s.transport != nil {
		s.transport.CloseIdleConnections()
	}
	return errors.Join(err, s.server.Close())
}

// waiting is how many messages wait.
func (s *sideLoad) waiting() int64 {
	n, err := s.server.Counts(ordersTopic + "/Subscriptions/" + billingSubscription)
	if err != nil {
		return -1
	}
	return n.Active
}

// supply sends a message for every so many events, until the load is over.
func (s *sideLoad) supply(ctx context.Context, events *atomic.Int64, finished *atomic.Bool) error {
	sender, err := s.client.NewSender(ordersTopic, nil)
	if err != nil {
		return fmt.Errorf("send to the topic: %w", err)
	}
	defer sender.Close(context.WithoutCancel(ctx))
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for sent := int64(0); ; {
		over := finished.Load() // before the count, which is final then
		batch, err := sender.NewMessageBatch(ctx, nil)
		if err != nil {
			return fmt.Errorf("send to the topic: %w", err)
		}
		for ; sent < events.Load()/eventsPerOrder; sent++ {
			if err := batch.AddMessage(&azservicebus.Message{Body: fmt.Appendf(nil, `{"order":%d}`, sent)}, nil); err != nil {
				break // the rest goes with the next batch
			}
		}
		if batch.NumMessages() > 0 {
			if err := sender.SendMessageBatch(ctx, batch, nil); err != nil {
				return fmt.Errorf("send to the topic: %w", err)
			}
		}
		if over {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// drain is billing: it receives messages at its own rate until ctx ends.
func (s *sideLoad) drain(ctx context.Context) error {
	receiver, err := s.client.NewReceiverForSubscription(ordersTopic, billingSubscription, &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
	if err != nil {
		return fmt.Errorf("receive from the subscription: %w", err)
	}
	defer receiver.Close(context.WithoutCancel(ctx))
	tick := time.NewTicker(billingRests)
	defer tick.Stop()
	for {
		if _, err := receiver.ReceiveMessages(ctx, billingBatch, nil); err != nil {
			return fmt.Errorf("receive from the subscription: %w", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
