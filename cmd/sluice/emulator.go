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

	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/emulator"
)

func (a *app) emulator() *cobra.Command {
	return a.group("emulator", "Emulate Event Hubs, Service Bus and Cosmos DB for development and tests", a.emulatorServe())
}

func (a *app) emulatorServe() *cobra.Command {
	var cfg emulator.Config
	var cosmos cosmosFlags
	var bus busFlags
	var hubs, keys []string
	var strict asAzureFlags
	var entra entraFlags
	cmd := &cobra.Command{
		Use:   "serve --hub NAME=PARTITIONS…",
		Short: "Run the emulator until interrupted",
		Long: `Serve event hubs over AMQP 1.0, for Azure's client libraries and for Sluice. AMQP over
WebSockets is served at the same addresses.

When the emulator is ready, it prints one line: "ready" and the connection string.

The RIGHTS of a key are listen, send and manage, separated by commas. With --control,
test programs can inject faults such as dropped connections and throttling. The address
of the control endpoint is printed on its own line, before "ready".

With --cosmos the emulator also serves a Cosmos DB account, over plain HTTP, and prints
a second line: "ready" and the account's connection string, with endpoint and key.
Documents are kept in memory.

With --servicebus the emulator also serves queues and topics, with the keys of the hubs,
and prints another line: "ready" and the namespace's connection string. Messages are
kept in memory, unless --servicebus-data names a directory. Queues and topics that exist
in that directory keep their settings. With --servicebus-admin, clients can create and
list queues and topics. The connection string for that is printed on its own line,
"servicebus-admin", before "ready". --servicebus-tls serves that as well, together with
AMQP and WebSockets, as port 443 does on Azure.

With --entra and --entra-principal, access tokens are accepted as those of Entra ID are, and
issued at that address, which is printed on its own line, "entra", before "ready". The
addresses with TLS issue them, too, over HTTPS.

With --as-azure, all of these are as strict and inexact as the services on Azure: runtime
information is out of date, quotas hold, idle links are detached. --as-azure NAME,… turns
on some of that. docs/reference/emulator.md lists the names.`,
		Example: `  sluice emulator serve --hub flights=4 --data ./hub --retention 24h
  sluice emulator serve --hub flights=4 --key reader=c2VjcmV0:listen
  sluice emulator serve --hub flights=4 --as-azure stale-runtime=10s,known-groups
  sluice emulator serve --hub docs=4 --cosmos 127.0.0.1:8081 --cosmos-container db/docs:/key --cosmos-ru 50000
  sluice emulator serve --hub flights=4 --servicebus 127.0.0.1:5673 --servicebus-queue orders,sessions,lock=30s --servicebus-topic news/all`,
		Args: strict.args,
		RunE: a.runE(func(ctx context.Context, args []string) error {
			azure, err := strict.parse(args)
			if err != nil {
				return err
			}
			cfg.AsAzure, cosmos.cfg.AsAzure, bus.cfg.AsAzure = azure, azure, azure
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
			if err := entra.parse(); err != nil {
				return err
			}
			bus.cfg.Keys = cfg.Keys
			cfg.Log, cosmos.cfg.Log, bus.cfg.Log = a.log, a.log, a.log
			return a.serve(ctx, list, &cfg, &cosmos, &bus, &entra)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Listen, "listen", "127.0.0.1:5672", "`address` for connections without TLS; - for none")
	f.StringVar(&cfg.TLSListen, "tls-listen", "", "`address` for connections with TLS, with a certificate made at start (default none)")
	f.StringVar(&cfg.TLSCertOut, "tls-cert-out", "", "write that certificate to a `file`, so that clients can trust it")
	f.StringVar(&cfg.Dir, "data", "", "`directory` for the events (default: in memory)")
	f.DurationVar(&cfg.Retention, "retention", 0, "how long events are kept (default: forever)")
	f.Int64Var(&cfg.RetentionBytes, "retention-bytes", 0, "how many `bytes` of the newest events each partition keeps (default: all)")
	f.IntVar(&cfg.MaxMessageBytes, "max-message-bytes", 0, "largest message or batch in `bytes` (default 1048576; in Azure's Basic tier 262144)")
	f.StringVar(&cfg.Control, "control", "", "loopback `address` of the endpoint for fault injection, for tests (default none)")
	f.StringArrayVar(&hubs, "hub", nil, "a hub, `NAME=PARTITIONS`; can be repeated")
	f.StringArrayVar(&keys, "key", nil, "a shared access key, `NAME=BASE64[:RIGHTS]`, by default with all rights; can be repeated (default: any key is accepted)")
	strict.register(cmd)
	entra.register(cmd)
	cosmos.register(cmd)
	bus.register(cmd)
	return cmd
}

func (a *app) serve(ctx context.Context, hubs []emulator.Hub, cfg *emulator.Config, cosmos *cosmosFlags, bus *busFlags, entra *entraFlags) (err error) {
	ctx, stop := term.UntilInterrupted(ctx)
	defer stop()
	issuer, err := entra.start(a.log)
	if err != nil {
		return err
	}
	if issuer != nil {
		defer func() { err = errors.Join(err, closing("the issuer", issuer)) }()
	}
	cfg.Issuer, cosmos.cfg.Issuer, bus.cfg.Issuer = issuer, issuer, issuer
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
	if issuer != nil {
		fmt.Fprintln(a.out, "entra", issuer.URL())
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
		return nil, usage.Errorf("a hub is missing: pass at least one --hub NAME=PARTITIONS")
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

// parseKeys parses --key. Its errors do not contain a key.
func parseKeys(list []string) ([]emulator.Key, error) {
	keys := make([]emulator.Key, len(list))
	for i, text := range list {
		name, secret, ok := strings.Cut(text, "=")
		if !ok || name == "" || secret == "" {
			return nil, usage.Errorf("--key number %d: write NAME=BASE64 or NAME=BASE64:RIGHTS", i+1)
		}
		secret, rights, limited := strings.Cut(secret, ":")
		if _, err := base64.StdEncoding.DecodeString(secret); err != nil || secret == "" {
			return nil, usage.Errorf("--key %s: the text after = is not base64", name)
		}
		if slices.ContainsFunc(keys[:i], func(k emulator.Key) bool { return k.Name == name }) {
			return nil, usage.Errorf("--key %s is given twice", name)
		}
		keys[i] = emulator.Key{Name: name, Secret: secret}
		if limited {
			var err error
			if keys[i].Rights, err = emulator.ParseRights(rights); err != nil {
				return nil, usage.Errorf("--key %s: the text after the colon: %v", name, err)
			}
		}
	}
	return keys, nil
}
