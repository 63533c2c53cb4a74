package pipeline

import (
	"bytes"
	"slices"
	"strings"

	"github.com/sluice-go/sluice/internal/config/strictyaml"
	"github.com/sluice-go/sluice/stamp"
)

// leastStampKey is the least length of a stamp key in bytes.
const leastStampKey = 16

// readStampKey reads a key with which stages sign their messages' stamps.
func readStampKey(n strictyaml.Node, key *[]byte) {
	if n.Literal() != "" {
		n.Fail("is a secret: put it into an environment variable and write ${STAMP_KEY}")
		return
	}
	var text string
	if !n.Text(&text) {
		return
	}
	if len(text) < leastStampKey {
		n.Fail("has %d bytes: use at least %d random ones, for example of: openssl rand -base64 32", len(text), leastStampKey)
		return
	}
	*key = []byte(text)
}

// believeStamps sets whose stamps each stage of a file believes: those of the stages in the file
// that send to its hub, with the keys that these sign with, and of the one that source.from names.
func believeStamps(stages []*reader) {
	for _, p := range stages {
		var from []stamp.Source
		senders := slices.DeleteFunc(slices.Clone(stages), func(s *reader) bool { return !s.sendsTo(p) })
		for _, s := range senders {
			if p.stampKeys.current != nil && s.stampKeys.current == nil {
				p.given.stampKey.Fail("stage %s, which sends to this one, has no stamp_key: its stamps would be believed unsigned: give it a key too", s.Name)
			}
			from = s.stampKeys.appendSources(from, s.Group.Topic)
		}
		if p.upstream != "" {
			from = p.stampKeys.appendSources(from, p.upstream)
		}
		for _, s := range senders {
			if s.stampKeys.current != nil && slices.ContainsFunc(from, func(o stamp.Source) bool { return o.Key == nil && strings.EqualFold(o.Topic, s.Group.Topic) }) {
				s.given.stampKey.Fail("stage %s would believe unsigned stamps of %s %s too: give a stamp_key to each stage that reads that %[2]s and sends to stage %[1]s, and to stage %[1]s if it has source.from", p.Name, s.System.Noun(), s.Group.Topic)
			}
		}
		p.config.StampsFrom = from
		if p.Rollup {
			p.rollup.stamps = stamp.NewReader(from)
		}
	}
}

// sendsTo reports whether a pipeline sends messages with stamps to the hub of another.
func (p *Pipeline) sendsTo(o *reader) bool {
	if p.source == nil || o.source == nil || p.Rollup {
		return false
	}
	return slices.ContainsFunc(p.routing.routes, func(r route) bool {
		t, ok := r.target.(*messageTarget)
		return ok && t.addressee.is(o.source.address())
	})
}

// stampKeys are the keys with which stamps are signed and checked.
type stampKeys struct {
	current []byte // nil: stamps are not signed
	old     []byte // the key before it, whose stamps are still believed
}

// appendSources appends the stage that reads a topic, with each of its keys.
func (k *stampKeys) appendSources(from []stamp.Source, topic string) []stamp.Source {
	keys := [][]byte{k.current}
	if k.old != nil {
		keys = append(keys, k.old)
	}
	for _, key := range keys {
		if !slices.ContainsFunc(from, func(s stamp.Source) bool {
			return strings.EqualFold(s.Topic, topic) && bytes.Equal(s.Key, key)
		}) {
			from = append(from, stamp.Source{Topic: topic, Key: key})
		}
	}
	return from
}

// StampsFrom returns the stages whose stamps the pipeline believes, as in [sluice.Config].
func (p *Pipeline) StampsFrom() []stamp.Source { return p.config.StampsFrom }
