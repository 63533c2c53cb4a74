package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/emulator"
)

func (a *app) emulator() *cobra.Command {
	return a.group("emulator", "An Event Hubs server for development and tests", a.emulatorServe())
}

func (a *app) emulatorServe() *cobra.Command {
	var cfg emulator.Config
	var cosmos cosmosFlags
	var bus busFlags
	var hubs, keys []string
	cmd := &cobra.Command{
		Use:   "serve --hub NAME=PARTITIONS…",
		Short: "Serve event hubs until interrupted",
		Long: `Serve event hubs over AMQP 1.0, for the official client libraries and Sluice.

Once it serves, it prints one line: "ready" and the connection string. AMQP over
WebSockets is served at the same addresses.

A key's RIGHTS are listen, send and manage, separated by commas. With --control, test
programs can have faults happen, such as dropped connections and throttling; the address
is in a line of its own, before "ready".

With --cosmos it serves a Cosmos DB account too, over plain HTTP, and prints a second line:
"ready" and the account's connection string, with endpoint and key. Its documents are in memory.

With --servicebus it serves queues and topics too, with the keys of the hubs, and prints another
line: "ready" and the namespace's connection string. Its messages are in memory, unless
--servicebus-data names a directory; queues and topics that are there keep the settings they
have there. With --servicebus-admin clients can create and look at queues and topics; the
connection string for that is in a line of its own, "servicebus-admin", before "ready".`,
		Example: `  sluice emulator serve --hub flights=4 --data ./hub --retention 24h
  sluice emulator serve --hub flights=4 --key reader=c2VjcmV0:listen
  sluice emulator serve --hub docs=4 --cosmos 127.0.0.1:8081 --cosmos-container db/docs:/key --cosmos-ru 50000
  sluice emulator serve --hub flights=4 --servicebus 127.0.0.1:5673 --servicebus-queue orders --servicebus-topic news/all`,
		Args: cobra.NoArgs,
		RunE: a.runE(func(ctx context.Context, _ []string) error {
			list, err := parseHubs(hubs)
			if err != nil {
				return err
			}
			if cfg.Keys, err = parseKeys(keys); err != nil {
				return err
			}
			if err := cosmos.parse(); err != nil {
				return err
			}
			if err := bus.parse(); err != nil {
				return err
			}
			bus.cfg.Keys = cfg.Keys
			cfg.Log, cosmos.cfg.Log, bus.cfg.Log = a.log, a.log, a.log
			return a.serve(ctx, list, &cfg, &cosmos, &bus)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Listen, "listen", "127.0.0.1:5672", "`address` for plain connections; - for none")
	f.StringVar(&cfg.TLSListen, "tls-listen", "", "`address` for TLS connections, with a certificate made at start (default none)")
	f.StringVar(&cfg.TLSCertOut, "tls-cert-out", "", "write that certificate to a `file`, for clients to trust")
	f.StringVar(&cfg.Dir, "data", "", "`directory` that keeps the events (default memory)")
	f.DurationVar(&cfg.Retention, "retention", 0, "how long events are kept (default for ever)")
	f.Int64Var(&cfg.RetentionBytes, "retention-bytes", 0, "how much of each partition is kept, its newest events, in `bytes` (default everything)")
	f.IntVar(&cfg.MaxMessageBytes, "max-message-bytes", 0, "largest message or batch, in `bytes` (default 1048576; Azure's basic tier has 262144)")
	f.StringVar(&cfg.Control, "control", "", "`address` on loopback of an endpoint that has faults happen, for tests (default none)")
	f.StringArrayVar(&hubs, "hub", nil, "a hub, `NAME=PARTITIONS`; repeat for more")
	f.StringArrayVar(&keys, "key", nil, "a shared access key that clients must have, `NAME=BASE64[:RIGHTS]` (default rights all); repeat for more (default none is asked for)")
	cosmos.register(cmd)
	bus.register(cmd)
	return cmd
}

func (a *app) serve(ctx context.Context, hubs []emulator.Hub, cfg *emulator.Config, cosmos *cosmosFlags, bus *busFlags) (err error) {
	ctx, stop := untilInterrupted(ctx)
	defer stop()
	srv, err := emulator.Start(hubs, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closing("the emulator", srv)) }()
	account, err := cosmos.start()
	if err != nil {
		return err
	}
	if account != nil {
		defer func() { err = errors.Join(err, closing("the Cosmos account", account)) }()
	}
	namespace, err := bus.start()
	if err != nil {
		return err
	}
	if namespace != nil {
		defer func() { err = errors.Join(err, closing("the Service Bus namespace", namespace)) }()
	}
	if addr := srv.ControlAddr(); addr != "" {
		fmt.Fprintln(a.out, "control", "http://"+addr)
	}
	if account != nil && account.ControlAddr() != "" {
		fmt.Fprintln(a.out, "cosmos-control", "http://"+account.ControlAddr())
	}
	bus.report(a.out, namespace)
	fmt.Fprintln(a.out, "ready", srv.ConnectionString())
	if account != nil {
		fmt.Fprintln(a.out, "ready", account.ConnectionString())
	}
	if namespace != nil {
		fmt.Fprintln(a.out, "ready", namespace.ConnectionString())
	}
	<-ctx.Done()
	return nil
}

func closing(what string, c io.Closer) error {
	if err := c.Close(); err != nil {
		return fmt.Errorf("close %s: %w", what, err)
	}
	return nil
}

func parseHubs(list []string) ([]emulator.Hub, error) {
	if len(list) == 0 {
		return nil, usage.Errorf("state at least one --hub NAME=PARTITIONS")
	}
	hubs := make([]emulator.Hub, len(list))
	for i, text := range list {
		name, count, ok := strings.Cut(text, "=")
		n, err := strconv.Atoi(count)
		if !ok || err != nil || name == "" {
			return nil, usage.Errorf("--hub %s: write NAME=PARTITIONS", text)
		}
		hubs[i] = emulator.Hub{Name: name, Partitions: n}
	}
	return hubs, nil
}

// parseKeys does not repeat a key in its errors.
func parseKeys(list []string) ([]emulator.Key, error) {
	keys := make([]emulator.Key, len(list))
	for i, text := range list {
		name, secret, ok := strings.Cut(text, "=")
		if !ok || name == "" || secret == "" {
			return nil, usage.Errorf("--key number %d: write NAME=BASE64 or NAME=BASE64:RIGHTS", i+1)
		}
		secret, rights, limited := strings.Cut(secret, ":")
		if _, err := base64.StdEncoding.DecodeString(secret); err != nil || secret == "" {
			return nil, usage.Errorf("--key %s: what follows the = is not base64", name)
		}
		if slices.ContainsFunc(keys[:i], func(k emulator.Key) bool { return k.Name == name }) {
			return nil, usage.Errorf("--key %s is stated twice", name)
		}
		keys[i] = emulator.Key{Name: name, Secret: secret}
		if limited {
			var err error
			if keys[i].Rights, err = emulator.ParseRights(rights); err != nil {
				return nil, usage.Errorf("--key %s: what follows the colon: %v", name, err)
			}
		}
	}
	return keys, nil
}
