package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-go/sluice/cmd/sluice/internal/loadgen"
	"github.com/sluice-go/sluice/cmd/sluice/internal/upload"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
)

const aboutGenerate = `With --generate the records are documents made for load tests, numbered from 0 to
N-1. Document 42 is {"id":"doc-0000000042","key":"key-42","payload":"…"}:
  - The id is the prefix and the number with at least ten digits.
  - The key is "key-" and the number modulo --key-count. It is the partition key too.
  - The payload fills the document up to --size.
The same N, prefix, keys and size always make the same documents, byte for byte. The
documents of a key keep their order. If the connection fails before a batch is
acknowledged, the batch is sent again, so a document can be in the hub twice. Two
documents never have the same id.`

const maxReplicas = 256

func addGenerated(f *pflag.FlagSet, g *upload.Generated) {
	f.Int64Var(&g.Count, "generate", 0, "generate and send this `number` of documents")
	f.IntVar(&g.Replicas, "replicas", 2, "`number` of concurrent producers, each with its own connection")
	f.IntVar(&g.Batch, "batch", 500, "largest `number` of messages in a batch; fewer if they do not fit")
	f.Int64Var(&g.Documents.Keys, "key-count", 70_000, "`number` of different keys")
	f.IntVar(&g.Documents.Size, "size", 1000, "size of a document in `bytes`")
	f.StringVar(&g.Documents.Prefix, "id-prefix", "doc-", "`text` at the beginning of each id")
}

// checkGenerated returns what is wrong with the flags of generated documents.
func checkGenerated(cmd *cobra.Command, g *upload.Generated, files []string) error {
	given := cmd.Flags().Changed
	if !given("generate") {
		for _, name := range []string{"replicas", "batch", "key-count", "size", "id-prefix"} {
			if given(name) {
				return usage.Errorf("--%s needs --generate", name)
			}
		}
		return nil
	}
	switch {
	case len(files) > 0:
		return usage.Errorf("--generate and files exclude each other")
	case given("key-field"):
		return usage.Errorf("--key-field: generated documents have a key already, see --key-count")
	case given("session-field"):
		return usage.Errorf("--session-field: generated documents have a key, but no session")
	case g.Count < 1 || g.Count > loadgen.MaxCount:
		return usage.Errorf("--generate %d: must be 1 to %d", g.Count, int64(loadgen.MaxCount))
	case g.Replicas < 1 || g.Replicas > maxReplicas:
		return usage.Errorf("--replicas %d: must be 1 to %d", g.Replicas, maxReplicas)
	case g.Batch < 1:
		return usage.Errorf("--batch %d: must be positive", g.Batch)
	case g.Documents.Keys < 1:
		return usage.Errorf("--key-count %d: must be positive", g.Documents.Keys)
	case g.Documents.Size < 1:
		return usage.Errorf("--size %d: must be positive", g.Documents.Size)
	case g.Documents.Prefix == "":
		return usage.Errorf("--id-prefix: must not be empty")
	}
	if _, err := loadgen.NewDocuments(&g.Documents); err != nil {
		return usage.Errorf("%s", err)
	}
	return nil
}
