package main

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-go/sluice/internal/feed"
)

// generateFlags are those of made-up documents.
type generateFlags struct {
	count    int64
	replicas int
	load     feed.LoadConfig
	docs     feed.DocumentsConfig
}

const aboutGenerate = `With --generate the records are documents made up for load tests, numbered from
0 to N-1. Document 42 is {"id":"doc-0000000042","key":"key-42","payload":"…"}:
the id is the prefix and the number in ten digits or more; the key is "key-" and
the number modulo --key-count, and is the event's partition key too; the payload
fills it up to --size. The same N, prefix, keys and size make the same documents
again, byte for byte. A key's documents keep their order. Where the answer to a
batch is lost it is sent again, so an event can be there twice, a document's id
never for two documents.`

const maxReplicas = 256

func (g *generateFlags) add(f *pflag.FlagSet) {
	f.Int64Var(&g.count, "generate", 0, "make up and send so `many` documents")
	f.IntVar(&g.replicas, "replicas", 2, "producers at a time, each with a connection of its own")
	f.IntVar(&g.load.Batch, "batch", 500, "events in a batch at most; fewer if the hub takes no more")
	f.Int64Var(&g.docs.Keys, "key-count", 70_000, "different keys")
	f.IntVar(&g.docs.Size, "size", 1000, "`bytes` of a document")
	f.StringVar(&g.docs.Prefix, "id-prefix", "doc-", "beginning of the ids")
}

// check says what is wrong with how the flags were used.
func (g *generateFlags) check(cmd *cobra.Command, files []string) error {
	given := cmd.Flags().Changed
	if !given("generate") {
		for _, name := range []string{"replicas", "batch", "key-count", "size", "id-prefix"} {
			if given(name) {
				return misused("--%s: goes with --generate", name)
			}
		}
		return nil
	}
	switch {
	case len(files) > 0:
		return misused("--generate makes up what is sent: leave the files out")
	case given("key-field"):
		return misused("--key-field: generated documents have a key already, see --key-count")
	case g.count < 1 || g.count > feed.MaxCount:
		return misused("--generate %d: must be 1 to %d", g.count, int64(feed.MaxCount))
	case g.replicas < 1 || g.replicas > maxReplicas:
		return misused("--replicas %d: must be 1 to %d", g.replicas, maxReplicas)
	case g.load.Batch < 1:
		return misused("--batch %d: must be positive", g.load.Batch)
	case g.docs.Keys < 1:
		return misused("--key-count %d: must be positive", g.docs.Keys)
	case g.docs.Size < 1:
		return misused("--size %d: must be positive", g.docs.Size)
	case g.docs.Prefix == "":
		return misused("--id-prefix: must not be empty")
	}
	if _, err := feed.NewDocuments(&g.docs); err != nil {
		return misused("%s", err)
	}
	return nil
}

// sendGenerated sends documents that it makes up.
func (a *app) sendGenerated(ctx context.Context, connection, hub string, g *generateFlags, rate float64) error {
	docs, err := feed.NewDocuments(&g.docs)
	if err != nil {
		return err
	}
	ctx, stop := untilInterrupted(ctx)
	defer stop()
	clients, partitions, hangUp, err := dial(ctx, connection, hub, g.replicas)
	if err != nil {
		return err
	}
	defer hangUp()
	g.load.Rate = rate
	l, err := feed.NewLoad(clients, partitions, docs, g.count, &g.load)
	if err != nil {
		return err
	}
	return a.reportSending(ctx, l.Acknowledged, func() error { return l.Send(ctx) })
}
