package prometheus

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/testserver"
)

// TestRealServer asks a real Prometheus that scrapes an endpoint of ours.
func TestRealServer(t *testing.T) {
	need.Prometheus(t)
	exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "jobs_waiting{queue=\"a\"} 3\njobs_waiting{queue=\"b\"} 4.5\n")
	}))
	defer exporter.Close()
	dir := t.TempDir()
	config := fmt.Sprintf("scrape_configs:\n- job_name: jobs\n  scrape_interval: 100ms\n  scrape_timeout: 100ms\n  static_configs:\n  - targets: [%q]\n",
		strings.TrimPrefix(exporter.URL, "http://"))
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	root, err := testserver.Repository()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(root, ".dev/prometheus/prometheus"), "--config.file=prometheus.yml", "--storage.tsdb.path=data", "--web.listen-address="+address)
	cmd.Dir = dir
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(output.String())
		}
	}()
	ask := func(query string) (float64, error) {
		s, err := New("http://"+address, query, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Read(t.Context())
		return r.Value, err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); ; <-tick.C {
		v, err := ask("sum(jobs_waiting)")
		if err == nil && v == 7.5 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("sum(jobs_waiting) is %v, %v", v, err)
		}
	}
	for query, want := range map[string]string{
		`jobs_waiting{queue="a"}`:     "3",
		"scalar(sum(jobs_waiting))":   "7.5",
		"none or vector(0)":           "0",
		"jobs_waiting":                "returns 2 series",
		"none":                        "returns no series",
		"jobs_waiting[1m]":            `returns a "matrix"`,
		`"text"`:                      `returns a "string"`,
		"vector(0) / 0":               `"NaN", which is not a finite number`,
		"sum(":                        "HTTP 400: bad_data: ",
		`sum(jobs_waiting{queue=""})`: "returns no series",
	} {
		v, err := ask(query)
		got := fmt.Sprint(v)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}
