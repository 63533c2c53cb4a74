package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/suite"
	"github.com/sluice-go/sluice/sluicetest"
)

// copied is the body of a copy.
type copied struct {
	Namespace, Topic, Incarnation, Partition, Error, Redrive string
	ConsumerGroup                                            string `json:"consumer_group"`
	Sequence, ID                                             int64
	Attempts                                                 int
	Status                                                   sluice.DeadLetterStatus
	Properties                                               map[string]string
	HasBody                                                  bool `json:"has_body"`
	Body                                                     *string
	BodyBytes                                                []byte `json:"body_base64"`

	messageID string
}

// mail collects copies.
type mail struct {
	t   *testing.T
	mu  sync.Mutex
	all map[string]copied // by partition/sequence
}

func (m *mail) add(body []byte, messageID string) {
	var c copied
	if err := json.Unmarshal(body, &c); err != nil {
		m.t.Errorf("copy %s: %v", body, err)
	}
	c.messageID = messageID
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[c.Partition+"/"+strconv.FormatInt(c.Sequence, 10)] = c
}

func (m *mail) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.all)
}

const copiesFile = `
name: flights
source:
  eventhub: {hub: flights, connection: "${SOURCE}"}
partitions: all
database: ${DATABASE_URL}
dead_letters:
  copy_to:
    %s
target:
  insert: {table: flights, create: true, columns: {n: {from: body.n, type: integer}}}
`

// TestCopiesOfDeadLetters runs pipelines whose dead letters are copied to each kind of target. One
// is too large for the messages and comes without its body.
func TestCopiesOfDeadLetters(t *testing.T) {
	targets := map[string]func(t *testing.T, m *mail) (env, yaml string){
		"http": func(t *testing.T, m *mail) (string, string) {
			srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				var batch []struct {
					Type, Source, ID, MessageID string
					Data                        json.RawMessage
				}
				body, _ := io.ReadAll(r.Body)
				if r.Method == http.MethodHead { // the check
					return
				}
				if err := json.Unmarshal(body, &batch); err != nil {
					m.t.Errorf("%v: %s", err, body)
				}
				for _, e := range batch {
					m.add(e.Data, e.MessageID)
					if e.Type != "sluice.deadletter" || !strings.HasPrefix(e.Source, "//localhost/flights/") || !strings.HasSuffix(string(e.Data), "}") {
						m.t.Errorf("copy %+v", e)
					}
				}
			}))
			t.Cleanup(srv.Close)
			return "COPIES=" + srv.URL, `http: {url: "${COPIES}", batch: {bytes: 300KB}}`
		},
		"servicebus": func(t *testing.T, m *mail) (string, string) {
			bus, err := emulator.StartServiceBus([]emulator.ServiceBusQueue{{Name: "dead"}}, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { bus.Close() })
			client, err := azservicebus.NewClientFromConnectionString(bus.ConnectionString(), nil)
			if err != nil {
				t.Fatal(err)
			}
			receiver, err := client.NewReceiverForQueue("dead", nil)
			if err != nil {
				t.Fatal(err)
			}
			collect(t, func(ctx context.Context) error {
				list, err := receiver.ReceiveMessages(ctx, 10, nil)
				for _, r := range list {
					m.add(r.Body, r.MessageID)
					if r.ApplicationProperties["topic"] != "flights" || r.ApplicationProperties["status"] != "dead" {
						m.t.Errorf("properties %v", r.ApplicationProperties)
					}
					receiver.CompleteMessage(ctx, r, nil)
				}
				return err
			})
			return "COPIES=" + bus.ConnectionString(), `servicebus: {connection: "${COPIES}", queue: dead}`
		},
		"eventhub": func(t *testing.T, m *mail) (string, string) {
			hubs, err := emulator.Start([]emulator.Hub{{Name: "dead", Partitions: 1}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { hubs.Close() })
			client, err := azeventhubs.NewConsumerClientFromConnectionString(hubs.ConnectionString(), "dead", "$Default", nil)
			if err != nil {
				t.Fatal(err)
			}
			earliest := true
			reader, err := client.NewPartitionClient("0", &azeventhubs.PartitionClientOptions{StartPosition: azeventhubs.StartPosition{Earliest: &earliest}})
			if err != nil {
				t.Fatal(err)
			}
			collect(t, func(ctx context.Context) error {
				list, err := reader.ReceiveEvents(ctx, 1, nil)
				for _, e := range list {
					m.add(e.Body, *e.MessageID)
				}
				return err
			})
			return "COPIES=" + hubs.ConnectionString(), `eventhub: {connection: "${COPIES}", hub: dead}`
		},
	}
	for name, target := range targets {
		t.Run(name, func(t *testing.T) {
			m := &mail{t: t, all: map[string]copied{}}
			env, yaml := target(t, m)
			p, err := Parse("my file's.yaml", fmt.Appendf(nil, copiesFile, yaml), environment(env, "DATABASE_URL=sqlite:"+filepath.Join(t.TempDir(), "x.db"),
				"SOURCE=Endpoint=sb://localhost;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"))
			if err != nil {
				t.Fatal(err)
			}
			if err := p.copies.target.check(t.Context(), nil); err != nil {
				t.Errorf("check: %v", err)
			}
			if n := len(p.Connections().HTTP); (n == 1) != (name == "http") {
				t.Errorf("%d HTTP endpoints among the connections", n)
			}
			hub := sluicetest.NewHub(p.Group, 1)
			large := bytes.Repeat([]byte{0xff}, 250_000)
			for _, body := range []string{`{"n":0}`, `{"n":"one"}`, string(large), `{"n":3}`} {
				hub.Append("0", &sluice.Event{Body: []byte(body), Properties: map[string]any{"who": "me"}})
			}
			parts, err := p.Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer parts.Close(context.WithoutCancel(t.Context()))
			c, err := parts.Consumer(t.Context(), &Options{Source: hub})
			if err != nil {
				t.Fatal(err)
			}
			ran := make(chan error, 1)
			go func() { ran <- c.Run(t.Context()) }()
			suite.Eventually(t, "both dead letters are copied", func() bool { return m.count() == 2 })
			if err := c.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			<-ran
			letters, err := parts.DeadLetters.List(t.Context(), p.Group, sluice.DeadLetterFilter{})
			if err != nil || len(letters) != 2 {
				t.Fatalf("dead letters %v, %v", letters, err)
			}
			one, two := m.all["0/1"], m.all["0/2"]
			if one.Body == nil || *one.Body != `{"n":"one"}` || one.Error != letters[0].Error || one.Attempts != letters[0].Attempts || one.Status != sluice.StatusDead ||
				one.Namespace != p.Group.Namespace || one.Topic != "flights" || one.ConsumerGroup != p.Group.Name || one.Incarnation != letters[0].Incarnation || one.Properties["who"] != "me" {
				t.Errorf("copy %+v, want all of %+v", one, letters[0])
			}
			if want := fmt.Sprintf(`sluice deadletters retry --config 'my file'\''s.yaml' %d`, letters[0].ID); one.Redrive != want {
				t.Errorf("redrive with %s, want %s", one.Redrive, want)
			}
			if one.messageID == "" || len(one.messageID) > 128 || one.messageID == two.messageID {
				t.Errorf("message ids %q, %q: want two of at most 128 characters", one.messageID, two.messageID)
			}
			if two.BodyBytes != nil != two.HasBody || two.HasBody != (name != "servicebus") || two.ID != letters[1].ID {
				t.Errorf("copy of a large event: body %t, %d bytes", two.HasBody, len(two.BodyBytes))
			}
		})
	}
}

// collect calls receive until the test ends.
func collect(t *testing.T, receive func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := receive(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

func TestCopyMistakes(t *testing.T) {
	const source = "Endpoint=sb://localhost;SharedAccessKeyName=a;SharedAccessKey=topsecret;UseDevelopmentEmulator=true"
	for _, c := range []struct{ yaml, want string }{
		{"", "p.yaml:8:3: dead_letters.copy_to: is empty: write keys and values under it"},
		{"{}", "p.yaml:8:3: dead_letters.copy_to: needs one of servicebus, eventhub, kafka and http"},
		{`{http: {url: "${URL}"}, kafka: {brokers: "b:9092", topic: t}}`, "p.yaml:8:3: dead_letters.copy_to: needs one of servicebus, eventhub, kafka and http"},
		{`{htp: {url: "${URL}"}}`, "p.yaml:8:13: dead_letters.copy_to.htp: unknown key, did you mean http?"},
		{`{http: {url: "https://h/", audit: {query: x}}}`, "p.yaml:8:39: dead_letters.copy_to.http.audit: unknown key: known keys are batch, concurrency, credential, format, headers, retry_after, scope, signature, timeout, tls, type, url"},
		{`{http: {format: json}}`, "p.yaml:8:13: dead_letters.copy_to.http.url: is missing"},
		{`{http: {url: "https://h/?key=topsecret"}}`, "p.yaml:8:20: dead_letters.copy_to.http.url: has a query or a password, which may be a secret: put the URL into an environment variable and write ${TARGET_URL}"},
		{`{servicebus: {queue: q}}`, "p.yaml:8:13: dead_letters.copy_to.servicebus: needs one of connection (write ${SERVICEBUS_CONNECTION_STRING}) and namespace (with credential: default)"},
		{`{servicebus: {connection: "${SOURCE}"}}`, "p.yaml:8:13: dead_letters.copy_to.servicebus: needs one of queue and topic"},
		{`{servicebus: {connection: "${SOURCE}", queue: q, session: key}}`, "p.yaml:8:61: dead_letters.copy_to.servicebus.session: unknown key: known keys are connection, credential, namespace, proxy, queue, tls_ca_file, topic, websocket"},
		{`{eventhub: {hub: flights}}`, "p.yaml:8:13: dead_letters.copy_to.eventhub: hub flights is the source of the pipeline: events would circulate for ever"},
		{`{kafka: {topic: t}}`, "p.yaml:8:13: dead_letters.copy_to.kafka: brokers are missing: write ${KAFKA_BROKERS}, or host:port, host:port"},
	} {
		yaml := fmt.Sprintf(strings.Replace(copiesFile, "copy_to:\n    %s", "copy_to: %s", 1), c.yaml)
		_, err := Parse("p.yaml", []byte(yaml), environment("SOURCE="+source, "DATABASE_URL=sqlite:x.db", "URL=https://h"))
		if err == nil || !slices.Contains(strings.Split(err.Error(), "\n"), c.want) {
			t.Errorf("%s: got  %v\nwant %s", c.yaml, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "topsecret") {
			t.Errorf("a secret is shown: %v", err)
		}
	}
	yaml := fmt.Sprintf(copiesFile, `eventhub: {hub: dead}`)
	p, err := Parse("p.yaml", []byte(yaml), environment("SOURCE="+source, "DATABASE_URL=sqlite:x.db"))
	if err != nil || p.copies.redrive != "sluice deadletters retry --config p.yaml" {
		t.Errorf("the source's namespace is the default: %v", err)
	}
	const stages = `
eventhub: {connection: "${SOURCE}"}
partitions: all
database: ${DATABASE_URL}
stages:
  raw:
    source: {eventhub: {hub: flights}}
    dead_letters: {copy_to: {eventhub: {hub: dead}}}
    target: {insert: {table: flights, columns: {n: body.n}}}
`
	p, err = Parse("p.yaml", []byte(stages), environment("SOURCE="+source, "DATABASE_URL=sqlite:x.db"))
	if err != nil || p.copies.redrive != "sluice deadletters retry --config p.yaml --stage raw" {
		t.Errorf("a stage: %v", err)
	}
}
