package pipeline

import (
	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/strictyaml"
)

// leastStampKey is the least length of a stamp key in bytes.
const leastStampKey = 16

// readStampKey reads the key with which the stage signs its messages' stamps and checks
// those of the messages that it reads.
func (p *Pipeline) readStampKey(n strictyaml.Node) {
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
	p.stampKey = []byte(text)
}

// believeStamps sets whose stamps each stage believes: those of the stages in the file that
// send to its hub, and of the one that source.from names.
func (f *File) believeStamps() {
	for _, p := range f.Stages {
		var from []sluice.StampSource
		if p.from != "" {
			from = append(from, sluice.StampSource{Topic: p.from, Key: p.stampKey})
		}
		if p.Group != (sluice.Group{}) {
			at := p.hub.address()
			for _, s := range f.Stages {
				if s.messages != nil && s.rollup == nil && s.messages.to == at && s.Group.Topic != "" && s.Group.Topic != p.from {
					from = append(from, sluice.StampSource{Topic: s.Group.Topic, Key: p.stampKey})
				}
			}
		}
		p.config.StampsFrom = from
		if p.rollup != nil {
			p.rollup.stamps = sluice.NewStampReader(from)
		}
	}
}

// StampsFrom returns the stages whose stamps the pipeline believes, as in [sluice.Config].
func (p *Pipeline) StampsFrom() []sluice.StampSource { return p.config.StampsFrom }
