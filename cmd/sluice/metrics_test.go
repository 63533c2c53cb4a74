package main_test

import (
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var metricsAt = regexp.MustCompile(`msg=metrics at=http://([^/]+)/metrics`)

// get reads a page, and its status; nothing while it can't be reached.
func get(url string) (int, string) {
	answer, err := http.Get(url)
	if err != nil {
		return 0, ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, ""
	}
	return answer.StatusCode, string(text)
}

// metricsOf waits until a process says where its metrics are.
func metricsOf(t *testing.T, p *process) (url string) {
	t.Helper()
	await(t, "the address of the metrics", func() bool {
		m := metricsAt.FindStringSubmatch(p.err.String())
		if m != nil {
			url = "http://" + m[1]
		}
		return m != nil
	})
	return url
}

func TestMetricsAndProbes(t *testing.T) {
	t.Parallel()
	_, connection := serve(t, 2)
	env := environment(connection, "sqlite:"+filepath.Join(t.TempDir(), "flights.db"))
	p := start(t, "", env, "run", example(t), "--metrics", "127.0.0.1:0")
	address := metricsOf(t, p)
	await(t, "the process to be ready", func() bool {
		code, _ := get(address + "/readyz")
		return code == http.StatusOK
	})
	if code, text := get(address + "/livez"); code != http.StatusOK || text != "ok\n" {
		t.Errorf("live: %d %s", code, text)
	}
	must(t, "", env, "send", "--hub", "flights", writeLines(t, flights20k(t)[:1000]), writeLines(t, spoiled(3)))
	committed := regexp.MustCompile(`(?m)^sluice_committed_messages_total\{.*messaging_destination_name="flights".*messaging_destination_partition_id="[01]".*\} (\d+)$`)
	parked := regexp.MustCompile(`(?m)^sluice_dead_letters_total\{.*outcome="parked".*\} [1-9]`)
	await(t, "all events in the metrics", func() bool {
		_, text := get(address + "/metrics")
		sum := 0
		for _, m := range committed.FindAllStringSubmatch(text, -1) {
			sum += atoi(t, m[1])
		}
		return sum == 1003 && parked.MatchString(text)
	})
	p.stop()

	code, _, errs := invoke(t, "", env, "run", example(t), "--metrics", strings.TrimPrefix(address, "http://")+"0000")
	if code != 1 || !strings.Contains(errs, "--metrics ") {
		t.Errorf("a wrong address: exit code %d: %s", code, errs)
	}
}

func atoi(t testing.TB, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
