package main

import (
	"context"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-go/sluice/cmd/sluice/internal/loadgen"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/sender"
)

// generateFlags are those of made-up documents.
type generateFlags struct {
	count    int64
	replicas int
	batch    int
	docs     loadgen.DocumentsConfig
}

const aboutGenerate = `With --generate the records are documents made up for load tests, numbered from
0 to N-1. Document 42 is {"id":"doc-0000000042","key":"key-42","payload":"…"}:
the id is the prefix and the number in ten digits or more; the key is "key-" and
the number modulo --key-count, and is the partition key too; the payload fills it
up to --size. The same N, prefix, keys and size make the same documents again,
byte for byte. A key's documents keep their order. Where the answer to a batch is
lost it is sent again, so a document can be there twice, an id never for two of
them.`

const maxReplicas = 256

func (g *generateFlags) add(f *pflag.FlagSet) {
	f.Int64Var(&g.count, "generate", 0, "make up and send so `many` documents")
	f.IntVar(&g.replicas, "replicas", 2, "`number` of producers at a time, each with a connection of its own")
	f.IntVar(&g.batch, "batch", 500, "`number` of messages in a batch at most; fewer if no more fit")
	f.Int64Var(&g.docs.Keys, "key-count", 70_000, "`number` of different keys")
	f.IntVar(&g.docs.Size, "size", 1000, "`bytes` of a document")
	f.StringVar(&g.docs.Prefix, "id-prefix", "doc-", "`text` that the ids begin with")
}

// check says what is wrong with how the flags were used.
func (g *generateFlags) check(cmd *cobra.Command, files []string) error {
	given := cmd.Flags().Changed
	if !given("generate") {
		for _, name := range []string{"replicas", "batch", "key-count", "size", "id-prefix"} {
			if given(name) {
				return usage.Errorf("--%s: goes with --generate", name)
			}
		}
		return nil
	}
	switch {
	case len(files) > 0:
		return usage.Errorf("--generate makes up what is sent: leave the files out")
	case given("key-field"):
		return usage.Errorf("--key-field: generated documents have a key already, see --key-count")
	case given("session-field"):
		return usage.Errorf("--session-field: generated documents have no session, but a key")
	case g.count < 1 || g.count > loadgen.MaxCount:
		return usage.Errorf("--generate %d: must be 1 to %d", g.count, int64(loadgen.MaxCount))
	case g.replicas < 1 || g.replicas > maxReplicas:
		return usage.Errorf("--replicas %d: must be 1 to %d", g.replicas, maxReplicas)
	case g.batch < 1:
		return usage.Errorf("--batch %d: must be positive", g.batch)
	case g.docs.Keys < 1:
		return usage.Errorf("--key-count %d: must be positive", g.docs.Keys)
	case g.docs.Size < 1:
		return usage.Errorf("--size %d: must be positive", g.docs.Size)
	case g.docs.Prefix == "":
		return usage.Errorf("--id-prefix: must not be empty")
	}
	if _, err := loadgen.NewDocuments(&g.docs); err != nil {
		return usage.Errorf("%s", err)
	}
	return nil
}

// sendGenerated sends documents that it makes up.
func (a *app) sendGenerated(ctx context.Context, to *destination, g *generateFlags, rate float64) error {
	docs, err := loadgen.NewDocuments(&g.docs)
	if err != nil {
		return err
	}
	load, err := loadgen.NewLoad(docs, g.count, &loadgen.LoadConfig{Replicas: g.replicas, Rate: rate})
	if err != nil {
		return err
	}
	ctx, stop := untilInterrupted(ctx)
	defer stop()
	way, err := to.open(ctx, g.replicas, g.batch)
	if err != nil {
		return err
	}
	defer way.close(ctx)
	senders := make([]*sender.Sender, g.replicas)
	for i, t := range way.transports {
		senders[i] = sender.New(t, senderConfig())
	}
	return a.reportSending(ctx, way, senders, func() error { return sendLoad(ctx, to, senders, load) })
}

// sendLoad has each sender send a part of a load. The first error ends all.
func sendLoad(ctx context.Context, to *destination, senders []*sender.Sender, load *loadgen.Load) error {
	going, give := context.WithCancelCause(ctx)
	defer give(nil)
	var work sync.WaitGroup
	for i, s := range senders {
		work.Go(func() {
			_, err := s.SendAll(going, func(yield func(sender.Message) bool) {
				for d := range load.Part(going, i) {
					m := to.message(d.Key, d.Body)
					m.MessageID = d.ID
					if !yield(m) {
						return
					}
				}
			})
			if err != nil {
				give(to.explain(err))
			}
		})
	}
	work.Wait()
	return context.Cause(going)
}
