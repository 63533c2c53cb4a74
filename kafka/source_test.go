package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/proof/need"
	"github.com/sluice-go/sluice/internal/proof/suite"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A topic that is not there is refused, and says what to do.
func TestNoSuchTopic(t *testing.T) {
	need.RealTime(t)
	t.Parallel()
	c, _ := newFake(t)
	s, err := c.open(t, nil).Source("elsewhere", "test", nil)
	suite.NoError(t, "source", err)
	_, err = s.Describe(suite.Context(t))
	suite.ErrorIs(t, "describe", err, driver.ErrRefused)
	if want := "topic elsewhere: no such topic: check the name, or create it (the broker says: UNKNOWN_TOPIC_OR_PARTITION: This server does not host this topic-partition.)"; err.Error() != want {
		t.Errorf("got  %v\nwant %v", err, want)
	}
	_, err = s.Open(suite.Context(t), "0", driver.Origin, 1)
	suite.ErrorIs(t, "open", err, driver.ErrRefused)
}

// A topic that was recreated is not opened before it was described again, and a reader of the topic
// of before ends soon.
func TestRecreated(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c *cluster) {
		s := c.source(t, nil)
		_, err := s.Describe(suite.Context(t))
		suite.NoError(t, "describe", err)
		c.send(t, "a", "b")
		r := openAt(t, s, driver.Position{Sequence: 0})
		readTo(t, r, 1)
		suite.NoError(t, "recreate", c.recreate(suite.Context(t)))
		c.send(t, "c", "d", "e")
		if r, err := s.Open(suite.Context(t), "0", driver.Position{Sequence: 1}, 1); err == nil || !strings.Contains(err.Error(), errRecreated.Error()) {
			t.Errorf("open of a recreated topic: %v, %v", r, err)
		}
		if events, err := r.Read(suite.Context(t), 10); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a reader of the topic of before read %v, %v", events, err)
		}
		_, err = s.Describe(suite.Context(t))
		suite.NoError(t, "describe", err)
		if got, _ := readTo(t, openAt(t, s, driver.Origin), 2); got != "cde" {
			t.Errorf("read %q from the new topic", got)
		}
	})
}

// A broker that takes connections and answers nothing is given up within the timeout.
func TestSilentBroker(t *testing.T) {
	need.RealTime(t)
	t.Parallel()
	c, _ := newFake(t)
	links := &links{}
	s, err := c.open(t, &Config{Timeout: 3 * time.Second, Dial: links.dialer(t)}).Source(c.topic, "test", nil)
	suite.NoError(t, "source", err)
	c.send(t, "a")
	r := openAt(t, s, driver.Origin)
	readTo(t, r, 0)
	end := links.silence(t)
	_, err = r.Read(suite.Context(t), 1)
	if err == nil || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "topic flights partition 0: no answer within 1s: ") {
		t.Errorf("read from a silent broker: %v", err)
	}
	t.Log(err)
	for what, ask := range map[string]func() error{
		"describe": func() error { _, err := s.Describe(suite.Context(t)); return err },
		"bounds":   func() error { _, err := s.Bounds(suite.Context(t), "0"); return err },
		"open":     func() error { _, err := s.Open(suite.Context(t), "0", driver.Origin, 1); return err },
	} {
		if err := ask(); err == nil || errors.Is(err, driver.ErrRefused) {
			t.Errorf("%s of a silent broker: %v", what, err)
		}
	}
	end()
	c.send(t, "b")
	suite.Eventually(t, "reads again", func() bool {
		r, err := s.Open(suite.Context(t), "0", driver.Position{Sequence: 0}, 1)
		if err == nil {
			_, err = r.Read(suite.Context(t), 1)
		}
		return err == nil
	})
}

// A reader that nobody reads holds at most PrefetchBytes and a fetch, and others go on.
func TestPrefetchBytes(t *testing.T) {
	c, _ := newFake(t)
	s := c.source(t, &SourceConfig{PrefetchBytes: 100_000})
	rng := rand.NewChaCha8([32]byte{})
	const n = 200
	for _, partition := range []string{"0", "1"} {
		for range n / 10 {
			var events []*driver.Event
			for range 10 {
				body := make([]byte, 5000) // that compression leaves as large
				_, _ = rng.Read(body)
				events = append(events, &driver.Event{Body: body})
			}
			suite.NoError(t, "append", c.append(suite.Context(t), partition, events...))
		}
	}
	idle := openAt(t, s, driver.Origin).(*reader)
	busy, err := s.Open(suite.Context(t), "1", driver.Origin, 1)
	suite.NoError(t, "open", err)
	for got := 0; got < n; {
		events, err := busy.Read(suite.Context(t), n)
		suite.NoError(t, "read", err)
		got += len(events)
		idle.mu.Lock()
		if idle.buffered > 200_000 || len(idle.chunks) == 0 && got > n/2 {
			t.Errorf("a reader that nobody reads holds %d bytes in %d chunks", idle.buffered, len(idle.chunks))
		}
		idle.mu.Unlock()
	}
	if got, _ := readTo(t, idle, n-1); len(got) != n*5000 {
		t.Errorf("read %d bytes afterwards, want %d", len(got), n*5000)
	}
}

// Two readers of one partition, and those of two sources, each get everything.
func TestReadersBeside(t *testing.T) {
	c, _ := newFake(t)
	client := c.open(t, nil)
	one, err := client.Source(c.topic, "one", nil)
	suite.NoError(t, "source", err)
	two, err := client.Source(c.topic, "two", &SourceConfig{ReadUncommitted: true})
	suite.NoError(t, "source", err)
	readers := []driver.Reader{openAt(t, one, driver.Origin), openAt(t, one, driver.Origin), openAt(t, two, driver.Origin)}
	for round := range int64(3) {
		c.send(t, numbered("x", 5)...)
		for i, r := range readers {
			if got, _ := readTo(t, r, 5*round+4); got != strings.Join(numbered("x", 5), "") {
				t.Errorf("reader %d: %q", i, got)
			}
		}
	}
}

func numbered(prefix string, n int) (bodies []string) {
	for i := range n {
		bodies = append(bodies, fmt.Sprintf("%s%d ", prefix, i))
	}
	return bodies
}

// Close ends what runs, and nothing is left of a client.
func TestClose(t *testing.T) {
	c, _ := newFake(t)
	before := runtime.NumGoroutine()
	client, err := Open(c.brokers, nil)
	suite.NoError(t, "open", err)
	s, err := client.Source(c.topic, "test", nil)
	suite.NoError(t, "source", err)
	r := openAt(t, s, driver.Origin)
	reading := suite.Spawn(t, func() error { _, err := r.Read(suite.Context(t), 1); return err })
	if err, came := suite.Settled(reading); came {
		t.Fatalf("read on an empty partition: %v", err)
	}
	suite.NoError(t, "close", client.Close(suite.Context(t)))
	suite.NoError(t, "close again", client.Close(suite.Context(t)))
	if err := <-reading; !errors.Is(err, errClosed) {
		t.Errorf("read: %v", err)
	}
	for what, ask := range map[string]func() error{
		"describe": func() error { _, err := s.Describe(suite.Context(t)); return err },
		"bounds":   func() error { _, err := s.Bounds(suite.Context(t), "0"); return err },
		"seek":     func() error { _, err := s.Seek(suite.Context(t), "0", sluice.Latest(), 1); return err },
		"open":     func() error { _, err := s.Open(suite.Context(t), "0", driver.Origin, 1); return err },
	} {
		if err := ask(); !errors.Is(err, errClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	suite.Eventually(t, "its goroutines have ended", func() bool { return runtime.NumGoroutine() <= before+2 })
}

// Where compaction took the last records of a log, their numbers are passed, but only if the broker
// itself would have them.
func TestVoid(t *testing.T) {
	for _, tiered := range []bool{false, true} {
		t.Run(fmt.Sprintf("tiered %v", tiered), func(t *testing.T) {
			c, fake := newFake(t)
			c.compact(t)
			c.send(t, numbered("x", 5)...)
			_, at := readTo(t, openAt(t, c.source(t, nil), driver.Origin), 4)
			c.send(t, numbered("x", 5)...)
			s := c.source(t, nil)
			s.voidFor = 100 * time.Millisecond
			// As from number 5 on, the broker has nothing to return.
			fake.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
				fetch := req.(*kmsg.FetchRequest)
				fake.KeepControl()
				if len(fetch.Topics) != 1 || fetch.Topics[0].Partitions[0].FetchOffset != 5 {
					return nil, nil, false
				}
				resp := req.ResponseKind().(*kmsg.FetchResponse)
				topic := kmsg.NewFetchResponseTopic()
				topic.TopicID = fetch.Topics[0].TopicID
				p := kmsg.NewFetchResponseTopicPartition()
				p.HighWatermark, p.LastStableOffset = 10, 10
				topic.Partitions = append(topic.Partitions, p)
				resp.Topics = append(resp.Topics, topic)
				return resp, nil, true
			})
			local := int64(0)
			if tiered {
				local = 7
			}
			fake.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
				fake.KeepControl()
				list := req.(*kmsg.ListOffsetsRequest)
				answer, known := map[int64]int64{earliestLocal: local, newestTime: 4}[list.Topics[0].Partitions[0].Timestamp]
				if !known {
					return nil, nil, false
				}
				resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
				topic := kmsg.NewListOffsetsResponseTopic()
				topic.Topic = list.Topics[0].Topic
				p := kmsg.NewListOffsetsResponseTopicPartition()
				p.Offset = answer
				topic.Partitions = append(topic.Partitions, p)
				resp.Topics = append(resp.Topics, topic)
				return resp, nil, true
			})
			r := openAt(t, s, at)
			events, err := r.Read(suite.Context(t), 10)
			switch {
			case tiered && (!errors.Is(err, driver.ErrRetention) || !strings.Contains(err.Error(), "remote store")):
				t.Errorf("read %v, %v; want an error: the broker may have failed to get its data", events, err)
			case !tiered && (err != nil || len(events) != 1 || !events[0].Control || events[0].Sequence != 9):
				t.Errorf("read %v, %v; want a marker of 9", events, err)
			case !tiered && *events[0].Passed != driver.Passed{Removed: 5}:
				t.Errorf("passed %+v, want 5 that were removed", events[0].Passed)
			case !tiered && (historyOf(at.Offset).first != 0 || historyOf(events[0].Offset) != history{historyOf(at.Offset).epoch, -1}):
				t.Errorf("after %q the marker has the history %q, want the leader alone", at.Offset, events[0].Offset)
			}
			if !tiered {
				c.send(t, "y")
				if got, at := readTo(t, r, 10); got != "y" {
					t.Errorf("behind the marker, read %q up to %v", got, at)
				}
			}
		})
	}
}

// Each way to authenticate works, and a wrong password is refused and not shown.
func TestPasswords(t *testing.T) {
	const user, password, wrong = "carl", "correct horse", "wrong battery"
	c, _ := newFake(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", user, password), kfake.Superuser("SCRAM-SHA-256", user, password), kfake.Superuser("SCRAM-SHA-512", user, password))
	for name, with := range map[string]func(user, password string) *Authentication{"PLAIN": Plain, "SCRAM-SHA-256": SCRAM256, "SCRAM-SHA-512": SCRAM512} {
		t.Run(name, func(t *testing.T) {
			describe := func(a *Authentication, timeout time.Duration) error {
				s, err := c.open(t, &Config{Authentication: a, Timeout: timeout}).Source(c.topic, "test", nil)
				suite.NoError(t, "source", err)
				_, err = s.Describe(suite.Context(t))
				return err
			}
			suite.NoError(t, "describe", describe(with(user, password), suite.Patience))
			err := describe(with(user, wrong), 3*time.Second)
			if err == nil || strings.Contains(err.Error(), wrong) {
				t.Errorf("with a wrong password: %v", err)
			}
			t.Log(err)
			if a := with(user, password); fmt.Sprintf("%v %+v %#v %s", a, a, a, a) != strings.TrimSpace(strings.Repeat(name+" ", 4)) {
				t.Errorf("printed as %v", a)
			}
			if _, err := Open(c.brokers, &Config{Authentication: with("", password)}); err == nil || strings.Contains(err.Error(), password) {
				t.Errorf("without a user: %v", err)
			}
		})
	}
}

// What goes wrong is said in one line, with what to do, and is refused only if another attempt
// cannot help.
func TestExplain(t *testing.T) {
	c, err := Open([]string{"broker"}, &Config{Authentication: Plain("user", "s3cret")})
	suite.NoError(t, "open", err)
	defer c.Close(t.Context())
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	_, late := (&net.Dialer{Timeout: 1}).Dial("tcp", "127.0.0.1:9")
	for _, e := range []struct {
		err     error
		refused bool
		want    string
	}{
		{kerr.TopicAuthorizationFailed, true, "it: not authorised: grant the operations Describe and Read on the topic (the broker says: " + kerr.TopicAuthorizationFailed.Error() + ")"},
		{fmt.Errorf("%w: for s3cret\nof yours", kerr.SaslAuthenticationFailed), true, "it: authentication refused: check the user and the password, or the token (the broker says: SASL_AUTHENTICATION_FAILED: SASL Authentication failed.: for *** of yours)"},
		{&tokenError{errors.New("the server is down")}, false, "it: no token: the server is down"},
		{&tokenError{fmt.Errorf("%w: no such client", driver.ErrRefused)}, true, "it: no token: refused: no such client"},
		{kerr.NotLeaderForPartition, false, "it: the broker says: NOT_LEADER_FOR_PARTITION: This server is not the leader for that topic-partition."},
		{&kgo.ErrFirstReadEOF{}, false, "it: the broker closed the connection: check the port, and whether its listener expects TLS and authentication as they are set"},
		{io.EOF, false, "it: the broker closed the connection: check the port, and whether its listener expects TLS and authentication as they are set"},
		{dial, false, "it: cannot connect: dial tcp: connection refused: check the addresses of the brokers, and whether they run"},
		{late, false, "it: cannot connect: dial tcp 127.0.0.1:9: i/o timeout: check the addresses of the brokers, and whether they run"},
		{context.Canceled, false, "it: context canceled"},
		{context.DeadlineExceeded, false, "it: context deadline exceeded"},
		{errClosed, false, "the Kafka client is closed"},
		{errors.New(strings.Repeat("long ", 200)), false, "it: " + strings.Repeat("long ", 60)[:300] + "…"},
	} {
		got := c.Explain("it", e.err)
		if got.Error() != e.want || errors.Is(got, driver.ErrRefused) != e.refused {
			t.Errorf("got  %v (refused: %v)\nwant %s", got, errors.Is(got, driver.ErrRefused), e.want)
		}
	}
	if got := c.Explain("it", nil); got != nil {
		t.Errorf("nil: %v", got)
	}
	if text := fmt.Sprintf("%v %+v %#v", c, c, c); strings.Contains(text, "s3cret") {
		t.Errorf("printed as %s", text)
	}
}

// Bad settings are refused when they are given.
func TestSettings(t *testing.T) {
	for want, open := range map[string]func() error{
		"no broker: give at least one, like 127.0.0.1:9092": func() error { _, err := Open(nil, nil); return err },
		"timeout of 1ms: must be at least 300ms":            func() error { _, err := Open([]string{"h"}, &Config{Timeout: time.Millisecond}); return err },
		"authentication by OAUTHBEARER: no function that returns tokens: give one": func() error {
			_, err := Open([]string{"h"}, &Config{Authentication: OAuthBearer(nil)})
			return err
		},
		"authentication by Entra ID: no credential: give one, for example azidentity.NewDefaultAzureCredential's": func() error {
			_, err := Open([]string{"h"}, &Config{Authentication: EntraID(nil)})
			return err
		},
	} {
		if err := open(); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	c, err := Open([]string{"h"}, nil)
	suite.NoError(t, "open", err)
	defer c.Close(t.Context())
	for _, s := range []struct{ topic, group string }{{"", "g"}, {"t/u", "g"}, {"t", ""}, {"t", strings.Repeat("g", 256)}} {
		if _, err := c.Source(s.topic, s.group, nil); err == nil {
			t.Errorf("a source of %q for %q", s.topic, s.group)
		}
	}
}
