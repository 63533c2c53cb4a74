package main_test

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/pipelines"
	"github.com/sluice-go/sluice/internal/proof/tcplink"
)

// deafCollector accepts connections, and answers nothing.
func deafCollector(t *testing.T) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan []net.Conn)
	go func() {
		var all []net.Conn
		for {
			conn, err := listener.Accept()
			if err != nil {
				accepted <- all
				return
			}
			all = append(all, conn)
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		for _, conn := range <-accepted {
			conn.Close()
		}
	})
	return listener.Addr().String()
}

// TestStopEndsAlthoughNothingAnswers: hub and collector are silent, and the database is locked.
// Each request has a bound, and together they last longer than a process has: it exits by itself,
// with a line that says so, after a signal as after the end of --within.
func TestStopEndsAlthoughNothingAnswers(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"signal": nil, "within": {"--until-caught-up", "--within", "15s"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := databases["sqlite"](t)
			_, connection := serve(t, 1)
			address := strings.TrimPrefix(strings.Split(connection, ";")[0], "Endpoint=sb://")
			link := tcplink.NewTest(t, strings.TrimSuffix(address, "/"))
			env := environment(strings.Replace(connection, strings.TrimSuffix(address, "/"), link.Addr(), 1), url, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+deafCollector(t))
			must(t, "", env, "send", "--hub", "flights", writeLines(t, flights20k(t)))
			p := start(t, "", env, append([]string{"run", example(t), "--stop-timeout", "1s"}, flags...)...)
			db := openDatabase(t, url)
			await(t, "the first rows", func() bool {
				var n int
				return db.QueryRow(countRows).Scan(&n) == nil && n > 0
			})
			link.Swallow() // before all is read, so that it never catches up
			conn, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if flags == nil {
				p.signal(syscall.SIGTERM)
			}
			code := p.wait()
			if took := time.Since(began); code != 1 || !strings.Contains(p.err.String(), "not stopped in time, exiting") || took < time.Second+pipelines.EndTimeout {
				t.Errorf("exit code %d after %v: %s", code, took, p.err.String())
			}
		})
	}
}

// TestGracePeriods: what starts the program gives it longer to stop than it takes at most.
func TestGracePeriods(t *testing.T) {
	t.Parallel()
	number := func(text, expression string) time.Duration {
		t.Helper()
		found := regexp.MustCompile(expression).FindStringSubmatch(text)
		if found == nil {
			t.Fatalf("no %s in %s", expression, text)
		}
		n, err := strconv.Atoi(found[1])
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(n) * time.Second
	}
	enough := func(where string, stop, grace time.Duration) {
		t.Helper()
		if grace <= stop+pipelines.EndTimeout {
			t.Errorf("%s: %v for a stop that takes up to %v and %v", where, grace, stop, pipelines.EndTimeout)
		}
	}
	help := must(t, "", nil, "run", "--help")
	flag := `--stop-timeout duration .* within (\d+)s more.* killed, 30s in Kubernetes \(default (\d+)s\)`
	if more := number(help, flag); more != pipelines.EndTimeout {
		t.Errorf("the help says %v, it is %v", more, pipelines.EndTimeout)
	}
	enough("the default, in Kubernetes", number(help, `--stop-timeout duration .*\(default (\d+)s\)`), 30*time.Second)
	files, err := filepath.Glob("../../deploy/kustomize/*/sluice.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, path := range append(files, "../../packaging/sluice@.service") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, part := range regexp.MustCompile(`(?m)^---$`).Split(string(text), -1) {
			if strings.Contains(part, "--stop-timeout") {
				found++
				enough(path, number(part, `--stop-timeout[= ](\d+)s`), number(part, `(?:terminationGracePeriodSeconds: |TimeoutStopSec=)(\d+)`))
			}
		}
		if found == 0 {
			t.Errorf("%s has no --stop-timeout", path)
		}
	}
}
