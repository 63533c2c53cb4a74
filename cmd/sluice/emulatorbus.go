package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

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
	f.StringArrayVar(&b.names, "servicebus-queue", nil, "a queue, `NAME[,SETTING…]`; can be repeated. Settings: sessions, lock=DURATION, ttl=DURATION, deliveries=NUMBER")
	f.StringArrayVar(&b.paths, "servicebus-topic", nil, "a topic and one of its subscriptions, `TOPIC/SUBSCRIPTION[,SETTING…]`, with the settings of a queue; can be repeated")
	f.StringVar(&b.cfg.TLSListen, "servicebus-tls", "", "`address` for connections with TLS, as port 443 on Azure: AMQP, WebSockets and the administration API, with a certificate made at start (default none)")
	f.StringVar(&b.cfg.TLSCertOut, "servicebus-tls-cert-out", "", "write that certificate to a `file`, so that clients can trust it")
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
			b.cfg.TLSListen != "", b.cfg.TLSCertOut != "",
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
	if b.cfg.TLSCertOut != "" && b.cfg.TLSListen == "" {
		return usage.Errorf("--servicebus-tls-cert-out needs --servicebus-tls ADDRESS")
	}
	for _, text := range b.names {
		q, err := parseBusQueue("--servicebus-queue", text)
		if err != nil {
			return err
		}
		b.queues = append(b.queues, q)
	}
	return b.parseTopics()
}

func (b *busFlags) parseTopics() error {
	at := make(map[string]int)
	for _, text := range b.paths {
		subscription, err := parseBusQueue("--servicebus-topic", text)
		if err != nil {
			return err
		}
		path := subscription.Name
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
		subscription.Name = path[slash+1:]
		b.topics[i].Subscriptions = append(b.topics[i].Subscriptions, subscription)
	}
	return nil
}

// parseBusQueue parses NAME[,SETTING…], the value of a flag.
func parseBusQueue(flag, text string) (emulator.ServiceBusQueue, error) {
	name, settings, _ := strings.Cut(text, ",")
	q := emulator.ServiceBusQueue{Name: name}
	for setting := range strings.SplitSeq(settings, ",") {
		key, value, _ := strings.Cut(setting, "=")
		var err error
		switch {
		case setting == "" && settings == "":
		case setting == "sessions":
			q.Sessions = true
		case key == "lock":
			q.Lock, err = positiveDuration(value)
		case key == "ttl":
			q.TTL, err = positiveDuration(value)
		case key == "deliveries":
			if q.MaxDeliveries, err = strconv.Atoi(value); err == nil && q.MaxDeliveries < 1 {
				err = errors.New("must be at least 1")
			}
		default:
			err = errors.New("write sessions, lock=DURATION, ttl=DURATION or deliveries=NUMBER")
		}
		if err != nil {
			return q, usage.Errorf("%s %s: setting %s: %v", flag, name, setting, err)
		}
	}
	return q, nil
}

func positiveDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err == nil && d <= 0 {
		err = errors.New("must be positive")
	}
	return d, err
}

// start returns nil if no namespace was asked for.
func (b *busFlags) start() (*emulator.ServiceBus, error) {
	if b.cfg.Listen == "" {
		return nil, nil
	}
	return emulator.StartServiceBus(b.queues, b.topics, &b.cfg)
}

// report prints the control endpoint and the connection strings for TLS and of the
// administration API.
func (b *busFlags) report(out io.Writer, srv *emulator.ServiceBus) {
	if srv == nil {
		return
	}
	if addr := srv.ControlAddr(); addr != "" {
		fmt.Fprintln(out, "servicebus-control", "http://"+addr)
	}
	if connection := srv.TLSConnectionString(); connection != "" && srv.Addr() != "" {
		fmt.Fprintln(out, "servicebus-tls", connection)
	}
	if connection := srv.AdminConnectionString(); connection != "" {
		fmt.Fprintln(out, "servicebus-admin", connection)
	}
}
