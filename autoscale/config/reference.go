package config

import (
	_ "embed"
	"slices"
	"sync"

	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/internal/config/strictyaml/reference"
	"github.com/sluice-go/sluice/pipeline"
)

//go:embed reference.yaml
var described []byte

const aboutFile = "An autoscaler's file says what is measured, what is scaled, and by which rule. It is YAML without anchors, aliases and tags. An unknown key is an error.\n\n" +
	"In all values except expressions, commands and queries, ${NAME} is replaced by an environment variable and ${NAME:-text} by the variable or, if it is unset or empty, by text. Keys and passwords that stand in the file itself are refused. Durations are written as 500ms, 30s or 1h30m."

// Reference describes all keys of an autoscaler's file.
var Reference = sync.OnceValue(func() *reference.File {
	whole := slices.Concat(described, pipeline.DescribeSource("metrics.*.lag.source"))
	f, err := reference.New("Autoscaler file", aboutFile, whole, readExplored, reference.Variant{Seed: "metrics: {key: {}}"})
	if err != nil {
		panic(err) // the description is part of the program
	}
	return f
})

// readExplored reads a file for its reference: a whole one, and one of a rule for a backtest.
func readExplored(n strictyaml.Node) {
	newConfig("autoscale.yaml").read(n, nil)
	newConfig("autoscale.yaml").read(n, []string{})
}
