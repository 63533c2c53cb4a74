package main

import (
	"cmp"
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice/cmd/sluice/internal/demo"
	"github.com/sluice-go/sluice/cmd/sluice/internal/flights"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/kafka"
)

func (a *app) demoKafka() *cobra.Command {
	var flags demoFlags
	var brokers, home, topic string
	cmd := &cobra.Command{
		Use:   "kafka {--brokers HOST:9092 | --kafka-home DIR}",
		Short: "Demo: flight records through a topic of Kafka into SQLite",
		Long: `Send real flight records to a topic of Kafka and write each one into a SQLite table,
exactly once. A few records lack the delay, which the table requires: they become dead
letters. Stop the demo at any moment, in any way, and start it again: it continues
where it stopped.

--brokers, or KAFKA_BROKERS, names brokers that run and need no TLS and no
authentication, such as that of "docker run -p 9092:9092 apache/kafka:4.1.0". The demo
creates the topic, and leaves it there.

--kafka-home, or KAFKA_HOME, is the directory of an unpacked release of Apache Kafka
(https://kafka.apache.org/downloads). The demo starts a broker of it, which needs Java 17
or later, and keeps the broker's data in its own directory.`,
		Example: `  sluice demo kafka --brokers 127.0.0.1:9092
  sluice demo kafka --kafka-home ~/kafka_2.13-4.1.0 --once`,
		Args: cobra.NoArgs,
		RunE: a.runE(func(ctx context.Context, _ []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			brokers, home := cmp.Or(brokers, os.Getenv("KAFKA_BROKERS")), cmp.Or(home, os.Getenv("KAFKA_HOME"))
			cfg := &demo.KafkaConfig{Home: home, Topic: topic}
			var err error
			switch {
			case brokers != "":
				if cfg.Brokers, err = kafka.ParseBrokers(brokers); err != nil {
					return usage.Errorf("--brokers: %v", err)
				}
			case home == "":
				return usage.Errorf("no Kafka to use: pass --brokers HOST:9092 of brokers that run, or --kafka-home DIR of an unpacked release of Apache Kafka")
			}
			return a.runDemo(ctx, flags, func(ctx context.Context) (*flights.Demo, error) { return demo.OpenKafka(ctx, flags.dir, cfg) })
		}),
	}
	f := cmd.Flags()
	f.StringVar(&brokers, "brokers", "", "`addresses` of brokers, separated by commas (default $KAFKA_BROKERS)")
	f.StringVar(&home, "kafka-home", "", "`directory` of an unpacked release of Apache Kafka (default $KAFKA_HOME)")
	f.StringVar(&topic, "topic", "sluice-demo", "`name` of the topic, which is created if it is missing")
	f.Int64Var(&flags.events, "events", 20_000, "`number` of records to send; after 20,000 the records repeat")
	f.StringVar(&flags.dir, "data", "sluice-data/kafka", "`directory` for the database, and for the broker that the demo starts")
	f.BoolVar(&flags.once, "once", false, "exit when all events are processed; fail unless each has exactly one effect")
	flags.web.add(f)
	flags.web.addScaling(f)
	return cmd
}
