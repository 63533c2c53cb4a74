package pipeline

import (
	_ "embed"
	"sync"

	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/internal/config/strictyaml/reference"
)

//go:embed reference.yaml
var described []byte

const aboutFile = "A pipeline file says where events come from, what is done with them, and where checkpoints are kept. It is YAML without anchors, aliases and tags, and holds one document. An unknown key is an error.\n\n" +
	"In all values except SQL and tests, ${NAME} is replaced by an environment variable and ${NAME:-text} by the variable or, if it is unset or empty, by text; $${ is a literal ${. Keys and passwords that stand in the file itself are refused. Durations are written as 500ms, 30s or 1h30m; sizes as 4096, 256KiB or 1MB. Relative paths are relative to the working directory.\n\n" +
	"A file has either the keys of one pipeline, or several pipelines below stages."

// Reference describes all keys of a pipeline file.
var Reference = sync.OnceValue(func() *reference.File {
	f, err := reference.New("Pipeline file", aboutFile, described, readExplored,
		reference.Variant{}, reference.Variant{Key: "stages", Seed: "partitions: all\nstages: {}"})
	if err != nil {
		panic(err) // the description is part of the program
	}
	return f
})

// readExplored reads a file for its reference.
func readExplored(n strictyaml.Node) { (&File{Path: "pipeline.yaml"}).read(n) }

// DescribeSource returns the description of the key source for another kind of file, which has it
// at a path, see [ReadInput].
func DescribeSource(path string) []byte { return reference.Rebase(described, "source", path) }
