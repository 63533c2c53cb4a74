package main_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestFacesOverKafka(t *testing.T) {
	t.Parallel()
	facesOverKafka(t, fakeKafka(t))
}

// facesOverKafka looks at a pipeline over a topic by the autoscaler, the metrics and the dashboard.
// The topic has aborted transactions and control records, and some of its events become dead
// letters.
func facesOverKafka(t *testing.T, brokers []string) {
	const partitions = 2
	k := newTopic(t, partitions, brokers)
	k.fill(partitions)
	env, config := k.environment(databases["sqlite"](t)), kafkaExample(t)
	file := lagAutoscaler(t, config)
	scaler := start(t, "", env, "autoscale", "run", file)
	lags := func(want float64) func() bool {
		return func() bool {
			if _, err := os.Stat(strings.TrimSuffix(file, "yaml") + "db"); err != nil {
				return false
			}
			log := logged(t, file)
			return len(log) > 0 && len(log[len(log)-1].Stats) == 1 && log[len(log)-1].Stats[0].Last == want
		}
	}
	await(t, "the lag of what was sent", func() bool {
		numbers := int64(0)            // a lag counts the numbers after a checkpoint, also those without an event
		for _, end := range k.ends() { // Kafka writes the marker of a commit after it has answered
			numbers += end
		}
		return lags(float64(numbers))()
	})

	p := start(t, t.TempDir(), env, "run", config, "--metrics", "127.0.0.1:0", "--web", "127.0.0.1:0")
	metrics := metricsOf(t, p)
	labels := fmt.Sprintf(`messaging_consumer_group_name="sluice",messaging_destination_name="%s",messaging_destination_partition_id="[01]",(?:[a-z_]+="[^"]*",)*messaging_system="kafka"`, k.name)
	sum := func(name string) (sum, samples int) {
		_, text := get(metrics + "/metrics")
		for _, m := range regexp.MustCompile(`(?m)^`+name+`\{`+labels+`[^}]*\} (\d+)$`).FindAllStringSubmatch(text, -1) {
			sum, samples = sum+atoi(t, m[1]), samples+1
		}
		return sum, samples
	}
	await(t, "all events in the metrics", func() bool {
		consumed, _ := sum("messaging_client_consumed_messages_total")
		committed, _ := sum("sluice_committed_messages_total")
		lag, known := sum("sluice_lag_messages")
		letters, _ := sum("sluice_dead_letters_total")
		return consumed == len(k.good)+len(k.bad) && committed == consumed && lag == 0 && known == partitions && letters == len(k.bad)
	})
	await(t, "no lag", lags(0))
	scaler.stop()

	url := dashboardOf(t, p)
	if so := auditBy(t, url, ""); so.Report == nil || so.Report.Total.Written != int64(len(k.good)) || so.Report.Total.Missing != 0 {
		t.Errorf("the dashboard's audit: %+v", so)
	}
	_, text := visit(t, url+"api/dead-letters", "")
	var so struct{ Letters []letter }
	if decode(t, text, &so); len(so.Letters) != len(k.bad) {
		t.Errorf("dead letters on the dashboard: %s", text)
	}
	p.stop()
}

// lagAutoscaler writes the file of an autoscaler by the lag of a pipeline.
func lagAutoscaler(t *testing.T, config string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "lag.yaml")
	text := fmt.Sprintf(`name: flights
every: 100ms
metrics:
  backlog:
    lag: {pipeline: %q}
target:
  command: {count: echo 1, scale: "true"}
rule:
  target: ceil(backlog / 1000)
  max: 5
  points: 2
  window: 10s
  stale: 10s
state:
  sqlite: %q
`, config, strings.TrimSuffix(file, "yaml")+"db")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestTruncationIsSeen: a partition whose log has lost events that were done is halted in the log
// lines, in the metrics and on the dashboard.
func TestTruncationIsSeen(t *testing.T) {
	t.Parallel()
	cluster, to := serveKafka(t)
	k := newTopic(t, 1, cluster.ListenAddrs())
	must(t, "", nil, "send", "--to", to, "--topic", k.name, writeLines(t, flights20k(t)[:50]))
	env, config := k.environment(databases["sqlite"](t)), kafkaExample(t)
	must(t, "", env, "run", config, "--until-caught-up")
	cluster.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		topic := kmsg.NewOffsetForLeaderEpochResponseTopic()
		topic.Topic = k.name
		ask := req.(*kmsg.OffsetForLeaderEpochRequest).Topics[0].Partitions[0]
		p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
		p.Partition, p.LeaderEpoch, p.EndOffset = ask.Partition, ask.LeaderEpoch, 30
		topic.Partitions = append(topic.Partitions, p)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
	p := start(t, t.TempDir(), env, "run", config, "--metrics", "127.0.0.1:0", "--web", "127.0.0.1:0")
	metrics := metricsOf(t, p)
	await(t, "the halt in the metrics", func() bool {
		code, text := get(metrics + "/metrics")
		return code == http.StatusOK && regexp.MustCompile(`(?m)^sluice_stopped\{.*messaging_system="kafka".*\} 1$`).MatchString(text)
	})
	await(t, "the halt in the log", func() bool {
		return strings.Contains(p.err.String(), "the log lost events 30 to 49, which were done")
	})
	await(t, "the halt on the dashboard", func() bool {
		return strings.Contains(liveOf(t, dashboardOf(t, p)), `"state":"stopped"`)
	})
}

// liveOf returns the first rows that a dashboard sends to a browser.
func liveOf(t *testing.T, url string) string {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url+"api/live?rows=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	so, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer so.Body.Close()
	lines := bufio.NewScanner(so.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data:") && strings.Contains(lines.Text(), `"state":`) {
			return lines.Text()
		}
	}
	return ""
}
