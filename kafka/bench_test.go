package kafka

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/kafkatest"
	"github.com/sluice-go/sluice/internal/proof/suite"

	"github.com/twmb/franz-go/pkg/kgo"
)

// BenchmarkRead reads four partitions of events of 1 KB from a broker, with this package and with
// franz-go's own consumer. The time is that of the CPU in this process.
func BenchmarkRead(b *testing.B) {
	const partitions, each = 4, 20_000
	broker := kafkatest.Shared(b)
	topic := kafkatest.Topic(b, partitions)
	producer, err := kgo.NewClient(kgo.SeedBrokers(broker.Brokers()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	suite.NoError(b, "client", err)
	rng := rand.NewChaCha8([32]byte{})
	for i := range partitions * each {
		body := make([]byte, 1000)
		_, _ = rng.Read(body)
		producer.Produce(b.Context(), &kgo.Record{Topic: topic, Partition: int32(i % partitions), Key: fmt.Append(nil, "key", i), Value: body}, nil)
	}
	suite.NoError(b, "flush", producer.Flush(b.Context()))
	producer.Close()
	measure := func(b *testing.B, read func(b *testing.B)) {
		b.ReportAllocs()
		began := cpu()
		for b.Loop() {
			read(b)
		}
		b.ReportMetric(float64(cpu()-began)/float64(b.N)/(partitions*each), "cpu-ns/event")
	}
	b.Run("Sluice", func(b *testing.B) {
		s := newCluster(b, broker.Brokers(), topic).source(b, nil)
		measure(b, func(b *testing.B) {
			done := make(chan error, partitions)
			for p := range partitions {
				r, err := s.Open(b.Context(), fmt.Sprint(p), driver.Origin, 1)
				suite.NoError(b, "open", err)
				go func() {
					for n := 0; n < each; {
						events, err := r.Read(b.Context(), 1000)
						if err != nil {
							done <- err
							return
						}
						n += len(events)
					}
					done <- r.Close(b.Context())
				}()
			}
			for range partitions {
				suite.NoError(b, "read", <-done)
			}
		})
	})
	b.Run("franz-go", func(b *testing.B) {
		measure(b, func(b *testing.B) {
			all := map[int32]kgo.Offset{}
			for p := range int32(partitions) {
				all[p] = kgo.NewOffset().AtStart()
			}
			consumer, err := kgo.NewClient(kgo.SeedBrokers(broker.Brokers()...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: all}))
			suite.NoError(b, "client", err)
			defer consumer.Close()
			for n := 0; n < partitions*each; {
				fetches := consumer.PollFetches(b.Context())
				suite.NoError(b, "poll", fetches.Err())
				n += fetches.NumRecords()
			}
		})
	})
}

// cpu returns the time that this process has taken of the CPU.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
