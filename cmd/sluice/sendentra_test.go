package main_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/emulator"
)

// TestSendWithEntra signs in with Entra ID's default credential.
func TestSendWithEntra(t *testing.T) {
	t.Parallel()
	issuer, err := emulator.StartIssuer([]emulator.Principal{{ID: "app", Secret: secret, Rights: emulator.Send | emulator.Listen}, {ID: "reader", Secret: "reader-secret", Rights: emulator.Listen}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer issuer.Close()
	dir, keys := t.TempDir(), []emulator.Key{{Name: "root", Secret: "cm9vdA=="}} // of the test itself
	hubCert, busCert := filepath.Join(dir, "hub.pem"), filepath.Join(dir, "bus.pem")
	hub, err := emulator.Start([]emulator.Hub{{Name: "flights", Partitions: 2, ConsumerGroups: []string{"sluice-audit"}}}, &emulator.Config{Keys: keys, TLSListen: "127.0.0.1:0", TLSCertOut: hubCert, Issuer: issuer})
	if err != nil {
		t.Fatal(err)
	}
	defer hub.Close()
	bus, err := emulator.StartServiceBus([]emulator.ServiceBusQueue{{Name: "orders"}},
		[]emulator.ServiceBusTopic{{Name: "news", Subscriptions: []emulator.ServiceBusQueue{{Name: "all"}}}}, &emulator.ServiceBusConfig{Keys: keys, TLSListen: "127.0.0.1:0", TLSCertOut: busCert, Issuer: issuer})
	if err != nil {
		t.Fatal(err)
	}
	defer bus.Close()
	file := writeLines(t, numbered(20))
	env := func(id, cert string) []string {
		return append(issuer.Environment(id), "SSL_CERT_FILE="+cert, "SSL_CERT_DIR="+dir, "AZURE_TOKEN_CREDENTIALS=ManagedIdentityCredential")
	}
	for _, c := range []struct {
		cert, namespace, kind, name string
		there                       func() int
	}{
		{hubCert, hub.TLSAddr(), "--hub", "flights", func() int { return len(lookAt(t, hub.ConnectionString()).bodies()) }},
		{busCert, bus.TLSAddr(), "--queue", "orders", func() int { return len(takeFrom(t, bus.ConnectionString(), "orders", 20)) }},
		{busCert, bus.TLSAddr(), "--topic", "news", func() int { return len(takeFrom(t, bus.ConnectionString(), "news", 20)) }},
	} {
		out := must(t, "", env("app", c.cert), "send", "--namespace", c.namespace, c.kind, c.name, "--key-field", "key", file)
		if n := c.there(); !strings.HasPrefix(out, "20 records acknowledged") || n != 20 {
			t.Errorf("%s: %d are there: %s", c.name, n, out)
		}
		for id, want := range map[string]string{"reader": "not authori", "nobody": "namespace " + c.namespace + ": no token from Entra ID: sign in with az login"} {
			variables := env(id, c.cert)
			if id == "nobody" {
				variables = append(variables, "IDENTITY_ENDPOINT="+issuer.URL()+"/msi/token", "IDENTITY_HEADER=wrong")
			}
			code, out, errs := invoke(t, "", variables, "send", "--namespace", c.namespace, c.kind, c.name, file)
			if code != 1 || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, want) || strings.Contains(errs, secret) {
				t.Errorf("%s as %s: exit code %d: %s%s", c.name, id, code, out, errs)
			}
		}
	}
	out := must(t, "", env("app", hubCert), "send", "--namespace", hub.TLSAddr(), "--hub", "flights", "--generate", "30")
	if !strings.HasPrefix(out, "30 records acknowledged") {
		t.Errorf("it says %s", out)
	}
	for args, want := range map[string]string{
		"--namespace contoso --hub h":                                      "--namespace contoso: write the whole host name, like contoso.servicebus.windows.net",
		"--namespace sb://contoso.servicebus.windows.net/ --hub h":         "--namespace: must be a host name only",
		"--namespace contoso.servicebus.windows.net --to x --hub h":        "--to and --namespace exclude each other",
		"--namespace contoso.servicebus.windows.net":                       "the destination is missing: pass --hub NAME",
		"--namespace= --hub h":                                             "--namespace: must not be empty",
		"--namespace contoso.servicebus.windows.net --hub h --subject red": "--subject needs --queue or --topic",
	} {
		code, out, errs := invoke(t, "", nil, append([]string{"send"}, append(strings.Fields(args), file)...)...)
		if code != 2 || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d: %s%s", args, code, out, errs)
		}
	}
}
