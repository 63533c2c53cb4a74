package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice/emulator"
)

// busFlags are those of the Service Bus namespace that joins the emulator.
type busFlags struct {
	cfg    emulator.ServiceBusConfig
	names  []string
	paths  []string
	queues []emulator.ServiceBusQueue
	topics []emulator.ServiceBusTopic
}

func (b *busFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&b.cfg.Listen, "servicebus", "", "`address` for a Service Bus namespace, such as 127.0.0.1:5673 (default none)")
	f.StringArrayVar(&b.names, "servicebus-queue", nil, "a queue, `NAME`; repeat for more")
	f.StringArrayVar(&b.paths, "servicebus-topic", nil, "a topic and one of its subscriptions, `TOPIC/SUBSCRIPTION`; repeat for more")
	f.BoolVar(&b.cfg.Premium, "servicebus-premium", false, "messages and batches of up to 1 MiB, as on the premium tier (default 256 KiB)")
}

// parse checks the flags.
func (b *busFlags) parse() error {
	if b.cfg.Listen == "" {
		if len(b.names) > 0 || len(b.paths) > 0 || b.cfg.Premium {
			return misused("the namespace's address is missing: state --servicebus ADDRESS, such as --servicebus 127.0.0.1:5673")
		}
		return nil
	}
	for _, name := range b.names {
		b.queues = append(b.queues, emulator.ServiceBusQueue{Name: name})
	}
	at := make(map[string]int)
	for _, path := range b.paths {
		slash := strings.LastIndex(path, "/")
		if slash < 1 || slash == len(path)-1 {
			return misused("--servicebus-topic %s: write TOPIC/SUBSCRIPTION", path)
		}
		topic := path[:slash]
		i, known := at[topic]
		if !known {
			i = len(b.topics)
			at[topic] = i
			b.topics = append(b.topics, emulator.ServiceBusTopic{Name: topic})
		}
		b.topics[i].Subscriptions = append(b.topics[i].Subscriptions, emulator.ServiceBusQueue{Name: path[slash+1:]})
	}
	return nil
}

// start returns nil if no namespace was asked for.
func (b *busFlags) start() (*emulator.ServiceBus, error) {
	if b.cfg.Listen == "" {
		return nil, nil
	}
	return emulator.StartServiceBus(b.queues, b.topics, &b.cfg)
}
