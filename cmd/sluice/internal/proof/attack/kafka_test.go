//go:build linux

package attack_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/attack"
	"github.com/sluice-go/sluice/internal/proof/built"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// kafka is the configuration of an attack on a cluster of Kafka. Its clients authenticate, with a
// password that must not show in any output.
func kafka(t *testing.T, program *built.Program, words, keys string) attack.Config {
	t.Helper()
	c := config(t, attack.Kafka, attack.PostgreSQL, program, plan(t, words))
	c.Pipeline = insert(t, c.Pipeline, "\n    topic:", "\n    sasl: {plain: {user: sluice, password: \"${KAFKA_PASSWORD}\"}}"+keys)
	return c
}

// TestKafka attacks consumers of a cluster, its brokers, and PostgreSQL.
func TestKafka(t *testing.T) {
	need.Kafka(t)
	need.Postgres(t)
	t.Parallel()
	words := "events=40000 rate=700 consumers=8 brokers=9 pauses=5 fenced=1 jumps=2 crashes=2 resets=6 blackholes=4 unplugs=3 commits=24 disks=1 " + os.Getenv("SLUICE_ATTACK")
	if os.Geteuid() != 0 {
		fmt.Println("left out: full disks of brokers, which need root to mount a small disk")
		words += " disks=0"
	}
	mustPass(t, kafka(t, program, words, ""))
}

// TestKafkaFindsWhatIsBroken: without its fence the program duplicates events, and if it reads
// uncommitted records, those of aborted transactions take effect.
func TestKafkaFindsWhatIsBroken(t *testing.T) {
	need.Kafka(t)
	need.Postgres(t)
	t.Parallel()
	c := kafka(t, unfenced, "events=10000 rate=1000 consumers=1 brokers=0 pauses=2 late=16", "\n    isolation: read_uncommitted")
	if r := mustDuplicate(t, c); r.Invented == 0 {
		t.Error("no record of an aborted transaction took effect without read_committed, so the attack would not find one")
	}
}

// TestKafkaTruncation has a topic lose what a consumer has done, in unclean elections.
func TestKafkaTruncation(t *testing.T) {
	need.Kafka(t)
	need.Postgres(t)
	t.Parallel()
	rounds := 1
	if text := os.Getenv("SLUICE_ATTACK_TRUNCATIONS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil || rounds < 1 {
			t.Fatalf("SLUICE_ATTACK_TRUNCATIONS=%s: write a number above 0", text)
		}
	}
	r, err := attack.Truncate(t.Context(), kafka(t, program, "", ""), rounds)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("\nunclean elections: %s\n", r)
	if r.Broken {
		need.Verdict(t)
	}
	if r.Lost == 0 {
		t.Error("the log has lost nothing, so the attack has shown nothing")
	}
	for _, f := range r.Findings {
		t.Error(f)
	}
}
