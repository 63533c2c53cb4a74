package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/emulator"
)

// busFlags are the flags of the emulator's Service Bus namespace.
type busFlags struct {
	cfg    emulator.ServiceBusConfig
	names  []string
	paths  []string
	tier   string
	queues []emulator.ServiceBusQueue
	topics []emulator.ServiceBusTopic
}

func (b *busFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&b.cfg.Listen, "servicebus", "", "`address` of a Service Bus namespace, such as 127.0.0.1:5673 (default none)")
	f.StringArrayVar(&b.names, "servicebus-queue", nil, "a queue, `NAME`; can be repeated")
	f.StringArrayVar(&b.paths, "servicebus-topic", nil, "a topic and one of its subscriptions, `TOPIC/SUBSCRIPTION`; can be repeated")
	f.StringVar(&b.cfg.Dir, "servicebus-data", "", "`directory` for the namespace's entities and messages (default: in memory)")
	f.StringVar(&b.tier, "servicebus-tier", tierStandard, "`tier`: standard (messages and batches up to 256 KiB) or premium (up to 1 MiB)")
	f.StringVar(&b.cfg.AdminListen, "servicebus-admin", "", "`address` of the administration API, over HTTPS with a certificate made at start (default none)")
	f.StringVar(&b.cfg.AdminCertOut, "servicebus-admin-cert-out", "", "write that certificate to a `file`, so that clients can trust it")
	f.StringVar(&b.cfg.Control, "servicebus-control", "", "loopback `address` of the endpoint for fault injection, for tests (default none)")
}

// Tiers of a namespace.
const (
	tierStandard = "standard"
	tierPremium  = "premium"
)

// parse checks the flags.
func (b *busFlags) parse() error {
	if b.cfg.Listen == "" {
		for _, given := range []bool{
			len(b.names) > 0, len(b.paths) > 0, b.tier != tierStandard, b.cfg.Dir != "", b.cfg.AdminListen != "", b.cfg.AdminCertOut != "", b.cfg.Control != "",
		} {
			if given {
				return usage.Errorf("the namespace's address is missing: pass --servicebus ADDRESS, such as --servicebus 127.0.0.1:5673")
			}
		}
		return nil
	}
	switch b.tier {
	case tierStandard:
	case tierPremium:
		b.cfg.Premium = true
	default:
		return usage.Errorf("--servicebus-tier %s: write %s or %s", b.tier, tierStandard, tierPremium)
	}
	if b.cfg.AdminCertOut != "" && b.cfg.AdminListen == "" {
		return usage.Errorf("--servicebus-admin-cert-out needs --servicebus-admin ADDRESS")
	}
	for _, name := range b.names {
		b.queues = append(b.queues, emulator.ServiceBusQueue{Name: name})
	}
	at := make(map[string]int)
	for _, path := range b.paths {
		slash := strings.LastIndex(path, "/")
		if slash < 1 || slash == len(path)-1 {
			return usage.Errorf("--servicebus-topic %s: write TOPIC/SUBSCRIPTION", path)
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

// report prints the control endpoint and the connection string of the administration API.
func (b *busFlags) report(out io.Writer, srv *emulator.ServiceBus) {
	if srv == nil {
		return
	}
	if addr := srv.ControlAddr(); addr != "" {
		fmt.Fprintln(out, "servicebus-control", "http://"+addr)
	}
	if connection := srv.AdminConnectionString(); connection != "" {
		fmt.Fprintln(out, "servicebus-admin", connection)
	}
}
