package pipeline

import (
	"maps"
	"regexp"
	"slices"

	"github.com/sluice-go/sluice/internal/config/strictyaml"
)

// sharedKeys are keys at the top of a file with stages, by name. They apply to each
// stage that does not set the key itself.
type sharedKeys map[string]strictyaml.Node

// sharedKeyNames are the keys that may be shared, besides the hubs' namespace.
var sharedKeyNames = []string{"partitions", "lease", "assign", "prefetch", "memory_limit", "stall_after", "silent_after", "batch", "fill", "retry", "database", "stamp_key", "old_stamp_key"}

// read reads the whole file.
func (f *File) read(n strictyaml.Node) {
	if !n.Has("stages") {
		readers := f.readEach(n, nil, func() *reader { return &reader{Pipeline: &Pipeline{Name: nameOf(f.Path)}} })
		for _, r := range readers {
			f.add(r.Pipeline, n)
		}
		believeStamps(readers)
		return
	}
	var readers []*reader
	var share connections
	var stages *strictyaml.Node
	shared := sharedKeys{}
	keys := strictyaml.Keys{
		"eventhub": func(n strictyaml.Node) { share.namespace.read(n, nil) },
		"kafka": func(n strictyaml.Node) {
			if c := (&kafkaCluster{}); c.read(n, nil, "brokers") {
				share.cluster = c
			}
		},
		"stages": func(n strictyaml.Node) { stages = &n },
	}
	for _, key := range sharedKeyNames {
		keys[key] = func(n strictyaml.Node) { shared[key] = n }
	}
	n.Object(keys)
	if stages == nil { // reported already
		return
	}
	stages.Each(func(name string, n strictyaml.Node) {
		if !stageName.MatchString(name) {
			n.Fail("not a valid name for a stage: write up to 63 letters, digits, - and _")
		}
		list := f.readEach(n, shared, func() *reader { return &reader{Pipeline: &Pipeline{Name: name}, stage: true, shared: share} })
		for _, r := range list {
			f.add(r.Pipeline, n)
		}
		readers = append(readers, list...)
	})
	if len(f.Stages) == 0 {
		stages.Fail("has no stages: write them as NAME: {source: …, target: …}")
	}
	believeStamps(readers)
}

var stageName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,63}$`)

// add adds a stage. Two stages must not read a hub in the same consumer group.
func (f *File) add(p *Pipeline, n strictyaml.Node) {
	if i := slices.IndexFunc(f.Stages, p.sameGroup); i >= 0 {
		n.Fail("reads %s %s in the consumer group %s as stage %s does: each needs a consumer group of its own", p.System.Noun(), p.Group.Topic, p.Group.Name, f.Stages[i].Name)
	}
	f.Stages = append(f.Stages, p)
}

// fill reads the keys that a stage does not have from the shared ones.
func (shared sharedKeys) fill(n strictyaml.Node, keys strictyaml.Keys) {
	for _, key := range slices.Sorted(maps.Keys(shared)) {
		if !n.Has(key) && keys[key] != nil {
			keys[key](shared[key])
		}
	}
}
