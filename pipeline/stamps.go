package pipeline

import (
	"bytes"
	"slices"
	"strings"

	"github.com/sluice-go/sluice/internal/strictyaml"
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

// believeStamps sets whose stamps each stage believes: those of the stages in the file that
// send to its hub, with the keys that these sign with, and of the one that source.from names.
func (f *File) believeStamps() {
	for _, p := range f.Stages {
		var from []stamp.Source
		for _, s := range f.sendersTo(p) {
			if p.stampKey != nil && s.stampKey == nil {
				p.keyNodes.stampKey.Fail("stage %s, which sends to this one, has no stamp_key: its stamps would be believed unsigned: give it a key too", s.Name)
			}
			from = s.appendStampSources(from, s.Group.Topic)
		}
		if p.from != "" {
			from = p.appendStampSources(from, p.from)
		}
		for _, s := range f.sendersTo(p) {
			if s.stampKey != nil && slices.ContainsFunc(from, func(o stamp.Source) bool { return o.Key == nil && strings.EqualFold(o.Topic, s.Group.Topic) }) {
				s.keyNodes.stampKey.Fail("stage %s would believe unsigned stamps of %s %s too: give a stamp_key to each stage that reads that %[2]s and sends to stage %[1]s, and to stage %[1]s if it has source.from", p.Name, s.System.Noun(), s.Group.Topic)
			}
		}
		p.config.StampsFrom = from
		if p.rollup != nil {
			p.rollup.stamps = stamp.NewReader(from)
		}
	}
}

// sendersTo returns the stages in the file that send messages with stamps to the hub of p.
func (f *File) sendersTo(p *Pipeline) (list []*Pipeline) {
	if p.source == nil {
		return nil
	}
	at := p.source.address()
	for _, s := range f.Stages {
		sends := slices.ContainsFunc(s.targets(), func(t *Pipeline) bool { return t.messages != nil && t.messages.to.is(at) })
		if sends && s.rollup == nil && s.source != nil {
			list = append(list, s)
		}
	}
	return list
}

// appendStampSources appends the stage that reads a topic, with each of the pipeline's keys.
func (p *Pipeline) appendStampSources(from []stamp.Source, topic string) []stamp.Source {
	keys := [][]byte{p.stampKey}
	if p.oldStampKey != nil {
		keys = append(keys, p.oldStampKey)
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
