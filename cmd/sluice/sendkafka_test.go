package main_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// serveKafka starts brokers in this process.
func serveKafka(t testing.TB, options ...kfake.Opt) (cluster *kfake.Cluster, to string) {
	t.Helper()
	cluster, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(2)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return cluster, "kafka://" + strings.Join(cluster.ListenAddrs(), ",")
}

// recordsOf reads a topic up to its present end.
func recordsOf(t testing.TB, brokers []string, topic string, options ...kgo.Opt) (records []*kgo.Record) {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ends, err := kadm.NewClient(c).ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	left := int64(0)
	ends.Each(func(o kadm.ListedOffset) { left += o.Offset })
	for left > 0 {
		fetched := c.PollFetches(t.Context())
		if err := fetched.Err0(); err != nil {
			t.Fatal(err)
		}
		fetched.EachRecord(func(r *kgo.Record) { records = append(records, r) })
		left -= int64(fetched.NumRecords())
	}
	return records
}

// checkSent checks that a topic has the records 0 to n-1 of 17 customers, each once, in order, and
// where other producers would put them.
func checkSent(t testing.TB, records []*kgo.Record, n, partitions int) {
	t.Helper()
	if len(records) != n {
		t.Fatalf("%d records, want %d", len(records), n)
	}
	theirs := kgo.StickyKeyPartitioner(nil).ForTopic("flights")
	next := map[string]int{}
	for _, r := range records {
		var got struct {
			Customer string
			N        int
		}
		decode(t, string(r.Value), &got)
		contentType := slices.IndexFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == "content-type" && string(h.Value) == "application/json" })
		if string(r.Key) != got.Customer || contentType < 0 || int(r.Partition) != theirs.Partition(&kgo.Record{Key: r.Key}, partitions) {
			t.Fatalf("record %s has key %q in partition %d, and headers %v", r.Value, r.Key, r.Partition, r.Headers)
		}
		if before, known := next[got.Customer]; known && got.N != before {
			t.Fatalf("record %d of %s where %d was due", got.N, got.Customer, before)
		}
		next[got.Customer] = got.N + 17
	}
}

func customers(n int) []string {
	lines := make([]string, n)
	for i := range lines {
		lines[i] = fmt.Sprintf(`{"customer":"c%d-%s","n":%d}`, i%17, strings.Repeat("long", 40), i)
	}
	return lines
}

func TestSendToKafka(t *testing.T) {
	t.Parallel()
	const n = 3000
	cluster, to := serveKafka(t, kfake.SeedTopics(3, "flights"))
	for name, args := range map[string][]string{
		"flights": {"--to", to, "--topic", "flights"},
		"made":    {"--to", "env:ELSEWHERE", "--create", "5"},
	} {
		env := []string{"ELSEWHERE=" + to + "/made"}
		out := must(t, "", env, append(append([]string{"send", "--key-field", "customer"}, args...), writeLines(t, customers(n)))...)
		if !strings.HasPrefix(out, fmt.Sprintf("%d records acknowledged in ", n)) || strings.Count(out, "\n") != 1 {
			t.Errorf("it says %s", out)
		}
		checkSent(t, recordsOf(t, cluster.ListenAddrs(), name), n, map[string]int{"flights": 3, "made": 5}[name])
	}
	// --create leaves a topic as it is that exists.
	must(t, "", nil, "send", "--to", to, "--topic", "made", "--create", "7", writeLines(t, []string{"{}"}))
	if n := len(cluster.PartitionInfos("made")); n != 5 {
		t.Errorf("%d partitions", n)
	}
}

func TestSendGeneratedToKafka(t *testing.T) {
	t.Parallel()
	cluster, to := serveKafka(t, kfake.SeedTopics(3, "flights"))
	out := must(t, "", nil, "send", "--to", to, "--topic", "flights", "--generate", "2000", "--batch", "10", "--replicas", "3")
	if !strings.HasPrefix(out, "2000 records acknowledged in ") {
		t.Errorf("it says %s", out)
	}
	var ids []string
	for _, r := range recordsOf(t, cluster.ListenAddrs(), "flights") {
		ids = append(ids, string(r.Headers[0].Value))
	}
	slices.Sort(ids)
	if ids = slices.Compact(ids); len(ids) != 2000 || ids[0] != "doc-0000000000" || ids[1999] != "doc-0000001999" {
		t.Errorf("%d ids", len(ids))
	}
}

// TestSendHeaders sends headers in their order, also with the same name, and properties after them.
func TestSendHeaders(t *testing.T) {
	t.Parallel()
	cluster, to := serveKafka(t, kfake.SeedTopics(1, "flights"))
	must(t, "", nil, "send", "--to", to, "--topic", "flights", "--content-type", "application/geo+json", "--header", "b=2", "--header", "a=1", "--header", "b=3=3",
		"--property", "site=north", "--property-field", "n", writeLines(t, []string{`{"n":7}`}))
	got := map[string][]string{}
	for _, h := range recordsOf(t, cluster.ListenAddrs(), "flights")[0].Headers {
		got[h.Key] = append(got[h.Key], string(h.Value))
	}
	want := map[string][]string{"a": {"1"}, "b": {"2", "3=3"}, "site": {"north"}, "n": {"7"}, "content-type": {"application/geo+json"}}
	for name, values := range want {
		if !slices.Equal(got[name], values) {
			t.Errorf("header %s: %q, want %q", name, got[name], values)
		}
	}
	for args, message := range map[string]string{
		"--header content-type=x":     "--header content-type: --content-type sets it already",
		"--header a=1 --property a=2": "--header a: --property sets it already",
	} {
		code, out, errs := invoke(t, "", nil, append([]string{"send", "--to", to, "--topic", "flights"}, strings.Fields(args)...)...)
		if code != 2 || out != "" || !strings.Contains(errs, message) {
			t.Errorf("%s: exit code %d: %s%s", args, code, out, errs)
		}
	}
}

// TestSendLeavesOutWhatKafkaRefuses names the record, and sends the others.
func TestSendLeavesOutWhatKafkaRefuses(t *testing.T) {
	t.Parallel()
	cluster, to := serveKafka(t, kfake.SeedTopics(1, "flights"))
	large := fmt.Sprintf(`{"a":%q}`, strings.Repeat("x", 1<<20))
	code, out, errs := invoke(t, "", nil, "send", "--to", to, "--topic", "flights", writeLines(t, []string{`{"a":1}`, large, `{"a":2}`}))
	if code != 1 || !strings.HasPrefix(out, "2 records acknowledged") || !strings.Contains(errs, ".ndjson: line 2: too large (1048584 bytes)") ||
		!strings.Contains(errs, "sluice: 1 record was too large for the topic: all others were sent") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	if n := len(recordsOf(t, cluster.ListenAddrs(), "flights")); n != 2 {
		t.Errorf("%d records", n)
	}
}

func TestSendToKafkaInterrupted(t *testing.T) {
	t.Parallel()
	cluster, to := serveKafka(t, kfake.SeedTopics(2, "flights"))
	end := func() (n int64) {
		for _, p := range cluster.PartitionInfos("flights") {
			n += p.HighWatermark
		}
		return n
	}
	p := start(t, "", nil, "send", "--to", to, "--topic", "flights", "--rate", "1000", writeLines(t, flights20k(t)))
	await(t, "some records", func() bool { return end() > 500 })
	p.signal(os.Interrupt)
	code := p.wait()
	var n int64
	if _, err := fmt.Sscanf(p.out.String(), "%d records acknowledged", &n); err != nil || code != 1 || !strings.Contains(p.err.String(), "interrupted") {
		t.Fatalf("exit code %d: %s%s", code, p.out.String(), p.err.String())
	}
	if there := end(); there < n || n < 500 {
		t.Errorf("%d acknowledged, %d are there", n, there)
	}
}

func TestSendToWrongKafka(t *testing.T) {
	t.Parallel()
	_, open := serveKafka(t, kfake.SeedTopics(1, "flights"))
	_, closed := serveKafka(t, kfake.SeedTopics(1, "flights"), kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "app", secret),
		kfake.User("SCRAM-SHA-256", "reader", secret, kfake.ACL{
			Resource: kmsg.ACLResourceTypeTopic, Name: "flights", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationDescribe, Allow: true,
		}))
	file := writeLines(t, []string{"{}"})
	login := func(mechanism, user, password string) []string {
		return []string{"KAFKA_SASL=" + mechanism, "KAFKA_USER=" + user, "KAFKA_PASSWORD=" + password}
	}
	for name, c := range map[string]struct {
		destination, topic string
		env                []string
		want               []string
	}{
		"unknown topic":  {open, "fligths", nil, []string{"topic fligths: not found", "--create N"}},
		"nobody there":   {"kafka://127.0.0.1:1", "flights", nil, []string{"topic flights", "connection refused", "check the addresses of the brokers, and whether they run"}},
		"no login":       {closed, "flights", nil, []string{"topic flights", "authentication"}},
		"no right":       {closed, "flights", login("scram-sha-256", "reader", secret), []string{"topic flights", "not authorised", "Write"}},
		"may not create": {closed, "other --create 2", login("scram-sha-256", "reader", secret), []string{"create topic other: not authorised"}},
		"no CA":          {"kafka+tls" + strings.TrimPrefix(open, "kafka"), "flights", []string{"KAFKA_CA_FILE=/nowhere"}, []string{"KAFKA_CA_FILE", "no such file"}},
	} {
		code, out, errs := invoke(t, "", c.env, slices.Concat([]string{"send", "--to", c.destination, file, "--topic"}, strings.Fields(c.topic))...)
		if code != 1 || strings.Count(errs, "\n") != 1 || strings.Contains(errs, secret) || strings.Contains(errs, "hunter2") {
			t.Errorf("%s: exit code %d: %s%s", name, code, out, errs)
		}
		for _, part := range c.want {
			if !strings.Contains(errs, part) {
				t.Errorf("%s: no %q in %s", name, part, errs)
			}
		}
	}
	must(t, "", login("plain", "app", secret), "send", "--to", closed, "--topic", "flights", file)
}

func TestSendToKafkaMisused(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--to kafka://a --hub h":                                                                       "--hub: Kafka has topics only",
		"--to kafka://a --queue q":                                                                     "--queue: Kafka has topics only",
		"--to kafka://a":                                                                               "the topic is missing: pass --topic NAME",
		"--to kafka://a/b --topic c":                                                                   "names another topic, b",
		"--to kafka://me:hunter2@a --topic c":                                                          "set the user, the password and other settings elsewhere",
		"--to kafka://a --topic c --session-field s":                                                   "--session-field: Kafka has no sessions",
		"--to kafka://a --topic c --create 0":                                                          "--create 0: must be positive",
		"--to Endpoint=sb://nowhere --topic c --create 1":                                              "--create needs an address of Kafka",
		"--to kafka://a --topic c KAFKA_USER=me":                                                       "KAFKA_SASL is not set",
		"--to kafka://a --topic c KAFKA_SASL=gssapi":                                                   "KAFKA_SASL: not known",
		"--to kafka://a --topic c KAFKA_SASL=plain":                                                    "KAFKA_USER and KAFKA_PASSWORD must be set",
		"--to kafka+tls://a --topic c KAFKA_CERT_FILE=a.b":                                             "set both KAFKA_CERT_FILE and KAFKA_KEY_FILE",
		"--to kafka://a --topic c KAFKA_CERT_FILE=a.b KAFKA_KEY_FILE=a.key":                            "are for TLS: write kafka+tls:// in the address",
		"--to kafka://a --topic c KAFKA_SASL=entra":                                                    "KAFKA_SASL=entra needs TLS: write kafka+tls://",
		"--to kafka://a --topic c KAFKA_SASL=oauthbearer":                                              "oauthbearer needs KAFKA_TOKEN_FILE, or KAFKA_TOKEN_URL",
		"--to kafka://a --topic c KAFKA_SASL=oauthbearer KAFKA_TOKEN_URL=https://a KAFKA_CLIENT_ID=me": "oauthbearer needs KAFKA_TOKEN_FILE",
		"--to kafka://a --topic c KAFKA_SASL=oauthbearer KAFKA_TOKEN_FILE=a KAFKA_TOKEN_URL=https://a KAFKA_CLIENT_ID=hunter2": "oauthbearer needs KAFKA_TOKEN_FILE",
	} {
		var env, rest []string
		for _, field := range strings.Fields(args) {
			if strings.HasPrefix(field, "KAFKA_") {
				env = append(env, field)
			} else {
				rest = append(rest, field)
			}
		}
		code, out, errs := invoke(t, "", env, append([]string{"send"}, rest...)...)
		if code != 2 || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, want) || strings.Contains(errs, "hunter2") {
			t.Errorf("%s: exit code %d: %s%s", args, code, out, errs)
		}
	}
}
