package emulator

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/sluice-go/sluice/emulator/internal/servicebus"
	"github.com/sluice-go/sluice/internal/amqp"
)

// busAsAzure is how a [ServiceBus] behaves: the settings of [ServiceBusAsAzure], and what
// they need to remember.
type busAsAzure struct {
	ServiceBusAsAzure
	premium bool
	dice    dice

	mu        sync.Mutex
	receiving map[string]int // links that receive, by queue or topic in lower case
}

func newBusAsAzure(a *AsAzure, premium bool) *busAsAzure {
	a = a.orDefault()
	b := &busAsAzure{ServiceBusAsAzure: a.ServiceBus, premium: premium, receiving: make(map[string]int)}
	b.dice.random = rand.New(rand.NewPCG(a.Seed, 1))
	return b
}

// Sizes of the largest message or batch, by tier.
const (
	maxStandard = 256 << 10
	maxPremium  = 1 << 20
)

// maxBatch returns the size of the largest batch in bytes.
func (a *busAsAzure) maxBatch() int {
	if a.premium {
		return maxPremium
	}
	return maxStandard
}

// maxMessage returns the size of the largest message in bytes.
func (a *busAsAzure) maxMessage() int {
	if a.premium && a.LargeMessages > 0 {
		return max(maxPremium, a.LargeMessages<<10)
	}
	return a.maxBatch()
}

// receive counts a link that receives from a queue or topic until leave is called.
func (a *busAsAzure) receive(entity string) (leave func(), err error) {
	entity = strings.ToLower(entity)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.Receivers > 0 && a.receiving[entity] >= a.Receivers {
		return nil, amqp.Errorf(amqp.CondResourceLimit, "The maximum number of '%d' concurrent receivers of '%.300s' has been reached.", a.Receivers, entity)
	}
	a.receiving[entity]++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.receiving[entity]--; a.receiving[entity] == 0 {
			delete(a.receiving, entity)
		}
	}, nil
}

// Quotas of a message. Ids have characters, properties bytes.
const (
	maxMessageID     = 128
	maxProperty      = 32 << 10
	maxAllProperties = 64 << 10
)

// checkMessage returns why Azure refuses an encoded message, if it does.
func (a *busAsAzure) checkMessage(message []byte) error {
	if !a.MessageID && !a.Properties {
		return nil
	}
	all := 0
	for len(message) > 0 {
		sec, rest, err := amqp.NextSection(message)
		if err != nil || sec.Code > amqp.SectionApplicationProperties {
			return nil
		}
		message = rest
		switch {
		case a.MessageID && sec.Code == amqp.SectionProperties:
			if v, err := sec.Decode(); err == nil {
				fields, _ := v.(amqp.List)
				if id, _ := append(fields, nil)[0].(string); utf8.RuneCountInString(id) > maxMessageID {
					return amqp.Errorf(condOutOfRange, "The MessageId has more than %d characters.", maxMessageID)
				}
			}
		case a.Properties && sec.Code == amqp.SectionApplicationProperties:
			var large string
			sec.Pairs(func(p amqp.RawPair) bool {
				if all += len(p.Raw); len(p.Value) > maxProperty {
					large = p.Key
				}
				return true
			})
			if large != "" || all > maxAllProperties {
				return amqp.Errorf(amqp.CondInvalidField, "The properties have %d bytes, the largest is '%.60s': a property may have %d, all together %d.",
					all, large, maxProperty, maxAllProperties)
			}
		}
	}
	return nil
}

// checkQueue returns why Azure refuses the settings of a queue or subscription, if it does.
func (a *busAsAzure) checkQueue(cfg *servicebus.QueueConfig) error {
	if cfg.Lock > 0 && cfg.Lock < a.ShortestLock {
		return fmt.Errorf("lock duration %s: must be at least %s", cfg.Lock, a.ShortestLock)
	}
	return a.checkSize(cfg.MaxBytes)
}

// checkSize returns why Azure refuses the maximum size of a queue or topic, if it does; 0 is
// the default.
func (a *busAsAzure) checkSize(size int64) error {
	most := int64(5)
	if a.premium {
		most = 80
	}
	const gib = 1 << 30
	if a.EntitySizes && size != 0 && (size%gib != 0 || size < gib || size > most*gib) {
		return fmt.Errorf("maximum size of %d bytes: must be 1 to %d GiB", size, most)
	}
	return nil
}

// inject injects the fault that matches an operation on a link, or refuses the operation at
// random; the results are those of [Faults.inject].
func (c *busPeer) inject(ctx context.Context, l *amqp.Link, on Operation, entity string) (FaultKind, error) {
	kind, err := c.namespace.faults.inject(ctx, l, on, entity, "")
	if kind == "" && on != OnReceive && c.bus.azure.dice.hits(c.bus.azure.RandomBusy) {
		return FaultServerBusy, errServerBusy
	}
	return kind, err
}

// limit sets the limits of connections and links.
func (a *busAsAzure) limit(cfg *namespaceConfig) {
	cfg.maxMessage = a.maxMessage()
	cfg.connections, cfg.idleLink, cfg.idleConnection, cfg.idleOrigin = a.Connections, a.IdleLink, a.IdleConnection, "AmqpMessage"
}
