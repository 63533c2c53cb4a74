//go:build unix

package kafkatest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/sluice-go/sluice/internal/proof/need"
)

// client makes a client, which is closed at the test's end.
func client(t *testing.T, brokers []string, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(brokers...)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// produce sends records of one byte to partition 0 of a topic.
func produce(t *testing.T, cl *kgo.Client, topic string, n int) {
	t.Helper()
	for range n {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("x")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// A broker keeps what it has acknowledged when it is killed, and goes on from there.
func TestOneBroker(t *testing.T) {
	need.Kafka(t)
	need.RealTime(t)
	t.Parallel()
	began := time.Now()
	c := New(t, nil)
	t.Logf("started in %v", time.Since(began).Round(time.Millisecond))
	topic := c.Topic(t, 1)
	cl := client(t, c.Brokers(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	produce(t, cl, topic, 10)
	if err := c.Kill(1); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	if err := c.Restart(1); err != nil {
		t.Fatal(err)
	}
	t.Logf("started again in %v", time.Since(began).Round(time.Millisecond))
	produce(t, cl, topic, 5)
	ends, err := c.Admin().ListEndOffsets(t.Context(), topic)
	if end, ok := ends.Lookup(topic, 0); err != nil || !ok || end.Offset != 15 {
		t.Errorf("the partition ends at %+v, %v; want 15", end, err)
	}
	if err := c.DeleteRecords(t.Context(), topic, 0, 12); err != nil {
		t.Error(err)
	}
	starts, err := c.Admin().ListStartOffsets(t.Context(), topic)
	if start, ok := starts.Lookup(topic, 0); err != nil || !ok || start.Offset != 12 {
		t.Errorf("the partition starts at %+v, %v; want 12", start, err)
	}
	if id, err := c.Admin().Metadata(t.Context()); err != nil || id.Cluster != c.ID() {
		t.Errorf("cluster %s, %v; want %s", id.Cluster, err, c.ID())
	}
}

func TestTopics(t *testing.T) {
	need.Kafka(t)
	need.RealTime(t)
	t.Parallel()
	c, topic := Shared(t), Topic(t, 2, "cleanup.policy=compact")
	if err := c.AddPartitions(t.Context(), topic, 3); err != nil {
		t.Fatal(err)
	}
	before, err := c.Admin().ListTopics(t.Context(), topic)
	if err != nil || len(before[topic].Partitions) != 3 {
		t.Fatalf("%+v, %v; want 3 partitions", before, err)
	}
	if err := c.DeleteTopic(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	if err := c.CreateTopic(t.Context(), topic, 1); err != nil {
		t.Fatal(err)
	}
	after, err := c.Admin().ListTopics(t.Context(), topic)
	if err != nil || len(after[topic].Partitions) != 1 || after[topic].ID == before[topic].ID {
		t.Errorf("%+v, %v; want another topic with one partition", after, err)
	}
}

// Each listener lets in who knows the secret, and nobody else.
func TestSecured(t *testing.T) {
	need.Kafka(t)
	need.RealTime(t)
	t.Parallel()
	c := New(t, &Config{Secure: true})
	topic := c.Topic(t, 1)
	token, err := c.Token("someone", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	expired, err := c.Token("someone", -2*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	mechanisms := func(password, token string) map[string]sasl.Mechanism {
		user := scram.Auth{User: User, Pass: password}
		return map[string]sasl.Mechanism{
			"PLAIN": plain.Auth{User: User, Pass: password}.AsMechanism(), "SCRAM-SHA-256": user.AsSha256Mechanism(),
			"SCRAM-SHA-512": user.AsSha512Mechanism(), "OAUTHBEARER": oauth.Auth{Token: token}.AsMechanism(),
		}
	}
	forged := token[:len(token)-8] + "AAAAAAAA"
	type way struct {
		listener Listener
		options  []kgo.Opt
		allowed  bool
	}
	ways := map[string]way{
		"TLS":                           {TLS, []kgo.Opt{kgo.DialTLSConfig(c.TLS(false))}, true},
		"no TLS":                        {TLS, nil, false},
		"mutual TLS":                    {MTLS, []kgo.Opt{kgo.DialTLSConfig(c.TLS(true))}, true},
		"mutual TLS, no certificate":    {MTLS, []kgo.Opt{kgo.DialTLSConfig(c.TLS(false))}, false},
		"SASL without authentication":   {SASL, nil, false},
		"SASL, TLS, no authentication":  {SASLTLS, []kgo.Opt{kgo.DialTLSConfig(c.TLS(false))}, false},
		"SASL, TLS, and no trust in it": {SASLTLS, []kgo.Opt{kgo.DialTLS(), kgo.SASL(mechanisms(c.Password(), token)["PLAIN"])}, false},
	}
	for name, m := range mechanisms(c.Password(), token) {
		ways[name] = way{SASL, []kgo.Opt{kgo.SASL(m)}, true}
		ways[name+" with TLS"] = way{SASLTLS, []kgo.Opt{kgo.SASL(m), kgo.DialTLSConfig(c.TLS(false))}, true}
	}
	for name, m := range mechanisms("wrong", expired) {
		ways[name+", refused"] = way{SASL, []kgo.Opt{kgo.SASL(m)}, false}
	}
	ways["OAUTHBEARER, a signature of nobody"] = way{SASL, []kgo.Opt{kgo.SASL(oauth.Auth{Token: forged}.AsMechanism())}, false}
	for name, w := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cl := client(t, c.Secured(w.listener), append(w.options, kgo.RequestRetries(0), kgo.RetryTimeout(5*time.Second))...)
			err := cl.Ping(t.Context())
			if (err == nil) != w.allowed {
				t.Fatalf("%v; allowed: %v", err, w.allowed)
			}
			// An answer to OAUTHBEARER that holds anything is a refusal (RFC 7628).
			refused := errors.Is(err, kerr.SaslAuthenticationFailed) || err != nil && strings.Contains(err.Error(), "unexpected data in oauth response")
			if want := strings.Contains(name, "refused") || strings.Contains(name, "nobody"); refused != want {
				t.Errorf("%v; refused by SASL: want %v", err, want)
			}
			if w.allowed {
				produce(t, cl, topic, 1)
			} else {
				t.Log(err)
			}
		})
	}
}

// A broker's end is noticed within the session's timeout, and a paused one is as one that is lost.
func TestThreeBrokers(t *testing.T) {
	need.Kafka(t)
	need.RealTime(t)
	t.Parallel()
	began := time.Now()
	c := New(t, &Config{Brokers: 3})
	t.Logf("started in %v", time.Since(began).Round(time.Millisecond))
	topic := c.Topic(t, 1)
	cl := client(t, c.Brokers(), kgo.MetadataMinAge(100*time.Millisecond), kgo.ProduceRequestTimeout(3*time.Second), kgo.RequestTimeoutOverhead(3*time.Second))
	produce(t, cl, topic, 10)
	for broker := range 3 {
		if err := c.AwaitSynced(t.Context(), topic, 0); err != nil {
			t.Fatal(err)
		}
		if err := c.Move(t.Context(), topic, 0, broker+1); err != nil {
			t.Fatal(err)
		}
		stop, start := c.Kill, c.Restart
		if broker == 2 {
			stop, start = c.Pause, c.Continue
		}
		if err := stop(broker + 1); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		produce(t, cl, topic, 10)
		t.Logf("broker %d lost: produced within %v", broker+1, time.Since(began).Round(time.Millisecond))
		began = time.Now()
		if err := start(broker + 1); err != nil {
			t.Fatal(err)
		}
		if err := c.AwaitSynced(t.Context(), topic, 0); err != nil {
			t.Fatal(err)
		}
		t.Logf("broker %d in sync again within %v", broker+1, time.Since(began).Round(time.Millisecond))
	}
	ends, err := c.Admin().ListEndOffsets(t.Context(), topic)
	if end, ok := ends.Lookup(topic, 0); err != nil || !ok || end.Offset != 40 {
		t.Errorf("the partition ends at %+v, %v; want 40", end, err)
	}
}

// What is written while one replica is paused is lost when it becomes the leader.
func TestLoseEnd(t *testing.T) {
	need.Kafka(t)
	need.RealTime(t)
	t.Parallel()
	c := New(t, &Config{Brokers: 3})
	for round := range 2 {
		topic := fmt.Sprintf("lossy-%d", round)
		if err := c.CreateTopicOn(t.Context(), topic, 1, 2, "min.insync.replicas=1"); err != nil {
			t.Fatal(err)
		}
		cl := client(t, c.Brokers(), kgo.MetadataMinAge(100*time.Millisecond))
		produce(t, cl, topic, 10)
		began := time.Now()
		if err := c.LoseEnd(t.Context(), topic, 0, func() error { produce(t, cl, topic, 7); return nil }); err != nil {
			t.Fatal(err)
		}
		t.Logf("lost within %v", time.Since(began).Round(time.Millisecond))
		produce(t, cl, topic, 1)
		ends, err := c.Admin().ListEndOffsets(t.Context(), topic)
		if end, ok := ends.Lookup(topic, 0); err != nil || !ok || end.Offset != 11 {
			t.Errorf("the partition ends at %+v, %v; want 11", end, err)
		}
	}
}
