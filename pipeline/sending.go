package pipeline

import (
	"time"

	"github.com/sluice-go/sluice/internal/config/strictyaml"
)

// batchLimits are how large a batch of messages may be; 0: as the service allows.
type batchLimits struct{ messages, bytes int }

// Limits of a batch, beyond what any service takes.
const (
	maxSent      = 100_000
	minSentBytes = 1 << 10
	maxSentBytes = 256 << 20
)

// addSendKeys adds the keys that say how messages are put into batches and sent. limits is nil if
// the size of a batch cannot be chosen.
func (t *messageTarget) addSendKeys(keys strictyaml.Keys, limits *batchLimits) {
	batch := strictyaml.Keys{
		"wait": func(n strictyaml.Node) { n.DurationIn(&t.sink.FlushAfter, time.Millisecond, maxTimeout) },
	}
	if limits != nil {
		batch["messages"] = func(n strictyaml.Node) { n.Int(&limits.messages, 1, maxSent) }
		batch["bytes"] = func(n strictyaml.Node) { n.SizeIn(&limits.bytes, minSentBytes, maxSentBytes) }
	}
	keys["batch"] = func(n strictyaml.Node) { n.Object(batch) }
	keys["concurrency"] = func(n strictyaml.Node) { n.Int(&t.sink.InFlight, 1, maxConcurrency) }
	keys["send_timeout"] = func(n strictyaml.Node) { n.DurationIn(&t.sink.Timeout, minTimeout, maxTimeout) }
}
