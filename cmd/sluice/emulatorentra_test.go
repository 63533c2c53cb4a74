package main_test

import (
	"net/http"
	"strings"
	"testing"
)

// The issuer's address is printed, and it gives a principal tokens for its secret.
func TestEmulatorEntra(t *testing.T) {
	t.Parallel()
	p := start(t, "", nil, "emulator", "serve", "--listen", "127.0.0.1:0", "--hub", "flights=1", "--entra", "127.0.0.1:0", "--entra-principal", "app="+secret+":listen")
	await(t, "the emulator", func() bool { return strings.Count(p.out.String(), "\n") == 2 })
	first, _, _ := strings.Cut(p.out.String(), "\n")
	address, ok := strings.CutPrefix(first, "entra ")
	if !ok {
		t.Fatalf("the emulator printed %q", p.out.String())
	}
	for header, want := range map[string]int{secret: http.StatusOK, "other": http.StatusUnauthorized} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/msi/token?resource=https://eventhubs.azure.net", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-IDENTITY-HEADER", header)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("status %d, want %d", res.StatusCode, want)
		}
	}
	serve := []string{"emulator", "serve", "--listen", "127.0.0.1:0", "--hub", "flights=1"}
	for want, args := range map[string][]string{
		"need each other":              {"--entra", "127.0.0.1:0"},
		"ID=SECRET need each":          {"--entra-principal", "app=" + secret},
		"number 1: write ID=SECRET":    {"--entra", "127.0.0.1:0", "--entra-principal", secret},
		"--entra-principal app: the t": {"--entra", "127.0.0.1:0", "--entra-principal", "app=" + secret + ":all"},
	} {
		code, out, err := invoke(t, "", nil, append(serve[:len(serve):len(serve)], args...)...)
		if code != 2 || !strings.Contains(err, want) || strings.Count(err, "\n") != 1 || strings.Contains(out+err, secret) {
			t.Errorf("%q: exit code %d: %s%s", args, code, out, err)
		}
	}
}
