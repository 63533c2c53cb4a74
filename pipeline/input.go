package pipeline

import (
	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
)

// Input is where events come from, in a file that is not a pipeline's.
type Input struct{ p Pipeline }

// ReadInput reads a mapping as that of source in a pipeline's file. It returns nil if there is a
// problem with it, which is in the file then.
func ReadInput(n strictyaml.Node) *Input {
	i := &Input{}
	r := &reader{Pipeline: &i.p}
	r.readSource(n)
	if at := r.logs.node; at != nil {
		at.Fail("goes in a pipeline's file: here write a source for each")
		return nil
	}
	if i.p.source == nil {
		return nil
	}
	return i
}

// System returns the kind of the log.
func (i *Input) System() System { return i.p.System }

// Start returns the start position of a partition without a checkpoint.
func (i *Input) Start() sluice.Start { return i.p.Start() }

// Open returns the log as its consumer group reads it. It connects when it is first used. The
// caller closes it. Errors have the place in the file.
func (i *Input) Open() (Source, error) { return i.p.SourceAs("") }
