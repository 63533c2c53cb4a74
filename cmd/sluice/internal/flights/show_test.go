package flights

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
)

// command is a demo of 1,000 events with its output.
func command(t *testing.T, dir string) (*Command, *strings.Builder) {
	t.Helper()
	screen, err := os.Create(dir + "/screen")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { screen.Close() })
	out, log := &strings.Builder{}, slog.New(slog.DiscardHandler)
	return &Command{
		Dir: dir, Events: 1000, Once: true, Started: time.Now(), Out: out, Screen: term.NewScreen(screen), Log: log, Program: "sluice",
		Open: func(ctx context.Context) (*Demo, error) { return OpenDemo(ctx, dir, log) },
		View: func(context.Context, *Demo) (*View, error) { return nil, nil },
	}, out
}

func says(t *testing.T, d *Demo, want string) {
	t.Helper()
	report, err := d.HubAudit(t.Context(), AuditGroup, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := report.Headline(); got != want {
		t.Errorf("the audit says %q, want %q", got, want)
	}
}

func TestCommandShowsTheDashboardAndCounts(t *testing.T) {
	c, out := command(t, t.TempDir())
	c.View = func(ctx context.Context, d *Demo) (*View, error) {
		v, err := Serve(ctx, d, "127.0.0.1:0", c.Log)
		if err != nil {
			return nil, err
		}
		url, _, _ := strings.Cut(v.Address, " ")
		client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		defer client.CloseIdleConnections()
		answer, err := client.Get(url)
		if err != nil {
			return nil, err
		}
		defer answer.Body.Close()
		if page, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(page), "flights") {
			t.Errorf("the dashboard answers %s, %v: %s", answer.Status, err, page)
		}
		return v, nil
	}
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"hub       Endpoint=sb://127.0.0.1:", "dashboard https://127.0.0.1:", "1,000 = 999 + 1, each exactly once", "sluice deadletters list --config "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	d := open(t, c.Dir)
	says(t, d, "Nothing lost, nothing duplicated: 1,000 events, 999 written, 1 dead letter, 0 waiting.")
	if _, err := d.store.DB().Exec("DELETE FROM flights WHERE hub_partition = '2' AND sequence_number = 7"); err != nil {
		t.Fatal(err)
	}
	says(t, d, "Not exact: 1 lost, of 1,000 events.")
}

func TestCommandFailsIfARowIsMissing(t *testing.T) {
	c, out := command(t, t.TempDir())
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.View = func(ctx context.Context, d *Demo) (*View, error) {
		_, err := d.store.DB().ExecContext(ctx, "DELETE FROM flights WHERE hub_partition = '2' AND sequence_number = 7")
		return nil, err
	}
	out.Reset()
	if err := c.Run(t.Context()); err == nil || strings.Contains(out.String(), "exactly once") {
		t.Errorf("error %v, output\n%s", err, out)
	}
}

// TestServeNeedsALoopbackAddress: without a token, nobody else may see the dashboard.
func TestServeNeedsALoopbackAddress(t *testing.T) {
	d := open(t, t.TempDir())
	_, err := Serve(t.Context(), d, "0.0.0.0:0", slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:0") {
		t.Errorf("error %v", err)
	}
}
