package emulator

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/amqp"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// manyProperties is an encoded message with that many application properties.
func manyProperties(prefix string, n int) (message []byte, properties amqp.Map) {
	properties = make(amqp.Map, n)
	for i := range properties {
		properties[i] = amqp.Pair{Key: fmt.Sprint(prefix, i), Value: true}
	}
	return amqp.AppendValue(amqp.AppendSection(nil, amqp.SectionApplicationProperties), properties), properties
}

// The queue is locked while properties are edited. So the time must not grow with the
// product of the numbers of properties: a request of 64 KiB would hold the lock for
// many seconds.
func TestEditsTakeLinearTime(t *testing.T) {
	need.RealTime(t)
	message, _ := manyProperties("m", 100_000)
	_, changes := manyProperties("c", 20_000)
	edit := editProperties(changes, 8<<20)
	var edited []byte
	var err error
	var took time.Duration
	for range 5 { // what else runs on the machine takes time, too
		start := time.Now()
		edited, err = edit(message)
		if took = time.Since(start); err != nil || took <= 2*time.Second {
			break
		}
	}
	if err != nil || took > 2*time.Second {
		t.Fatalf("an edit of %d properties of %d took %s: %v", len(changes), 100_000, took, err)
	}
	section, _, err := amqp.NextSection(edited)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	section.Pairs(func(amqp.RawPair) bool { n++; return true })
	if n != 120_000 {
		t.Fatalf("%d properties, not 120000", n)
	}
}

// Edits replace properties of the same name, and none is there twice.
func TestEditsKeepNamesUnique(t *testing.T) {
	message, _ := manyProperties("p", 3)
	edit := editProperties(amqp.Map{{Key: "p1", Value: "first"}, {Key: amqp.Symbol("p1"), Value: "second"}, {Key: "new", Value: 1}}, 1<<20)
	edited, err := edit(message)
	if err != nil {
		t.Fatal(err)
	}
	m, err := amqp.ParseMessage(edited)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Properties) != 4 || m.Properties.String("p1") != "first" {
		t.Fatalf("properties after the edit: %v", m.Properties)
	}
}

// A message can't grow beyond the maximum size by edits; one that is already larger can
// be edited to a smaller one.
func TestEditsKeepToTheMaximumSize(t *testing.T) {
	message, _ := manyProperties("p", 10)
	_, changes := manyProperties("c", 100)
	var refused *amqp.Error
	if _, err := editProperties(changes, len(message)+50)(message); !errors.As(err, &refused) || refused.Condition != amqp.CondMessageSize {
		t.Fatalf("an edit beyond the maximum size: %v", err)
	}
	if _, err := editProperties(amqp.Map{{Key: "p1", Value: nil}}, len(message)-1)(message); err != nil {
		t.Fatalf("an edit that doesn't make the message larger: %v", err)
	}
}
