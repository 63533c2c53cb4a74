package emulator_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-go/sluice/emulator"
)

const busBenchBody = 1000

// benchBus runs a benchmark in memory and on disk.
func benchBus(b *testing.B, run func(b *testing.B, c *azservicebus.Client)) {
	for _, where := range []string{"memory", "disk"} {
		b.Run(where, func(b *testing.B) {
			cfg := &emulator.ServiceBusConfig{}
			if where == "disk" {
				cfg.Dir = b.TempDir()
			}
			srv := startBus(b, emulator.ServiceBusQueue{MaxBytes: 8 << 30}, cfg)
			b.ReportAllocs()
			run(b, busClient(b, srv.ConnectionString()))
		})
	}
}

// fillBus sends n messages of 1 KB in full batches, four on their way at a time.
func fillBus(b *testing.B, c *azservicebus.Client, n int) {
	b.Helper()
	const senders = 4
	var wg sync.WaitGroup
	for i := range senders {
		s := busSender(b, c, "orders")
		share := n / senders
		if i == 0 {
			share = n - share*(senders-1)
		}
		wg.Go(func() {
			ctx := context.Background()
			for sent := 0; sent < share; {
				batch, err := s.NewMessageBatch(ctx, nil)
				if err != nil {
					b.Error(err)
					return
				}
				for sent < share && batch.AddMessage(&azservicebus.Message{Body: make([]byte, busBenchBody)}, nil) == nil {
					sent++
				}
				if err := s.SendMessageBatch(ctx, batch, nil); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkBusSend(b *testing.B) {
	benchBus(b, func(b *testing.B, c *azservicebus.Client) {
		fillBus(b, c, 1) // links are open
		b.ResetTimer()
		fillBus(b, c, b.N)
		perSecond(b, b.N)
	})
}

// One message at a time, by many senders: what is waited for together is written together.
func BenchmarkBusSendSingly(b *testing.B) {
	benchBus(b, func(b *testing.B, c *azservicebus.Client) {
		const senders = 32
		fillBus(b, c, 1)
		var left atomic.Int64
		left.Store(int64(b.N))
		b.ResetTimer()
		var wg sync.WaitGroup
		for range senders {
			s := busSender(b, c, "orders")
			wg.Go(func() {
				for left.Add(-1) >= 0 {
					if err := s.SendMessage(context.Background(), &azservicebus.Message{Body: make([]byte, busBenchBody)}, nil); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		perSecond(b, b.N)
	})
}

func BenchmarkBusReceive(b *testing.B) {
	deleting := &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete}
	for _, options := range []*azservicebus.ReceiverOptions{nil, deleting} {
		mode := "and complete"
		if options == deleting {
			mode = "and delete"
		}
		b.Run(mode, func(b *testing.B) {
			benchBus(b, func(b *testing.B, c *azservicebus.Client) {
				fillBus(b, c, b.N)
				r := busReceiver(b, c, "orders", options)
				b.ResetTimer()
				for got := 0; got < b.N; {
					ms, err := r.ReceiveMessages(context.Background(), min(500, b.N-got), nil)
					if err != nil {
						b.Fatal(err)
					}
					got += len(ms)
					if options != nil {
						continue
					}
					var wg sync.WaitGroup
					for _, m := range ms {
						wg.Go(func() {
							if err := r.CompleteMessage(context.Background(), m, nil); err != nil {
								b.Error(fmt.Errorf("complete: %w", err))
							}
						})
					}
					wg.Wait()
				}
				perSecond(b, b.N)
			})
		})
	}
}
