package sender

import (
	"crypto/rand"
	"strconv"
	"strings"
)

// idPrefix is the length of the prefix that the generated message ids of a run
// share. Each of its characters has five random bits.
const idPrefix = 14

// idDigits is how many digits an index has at most, in base 36.
const idDigits = 13

// idGenerator generates the ids of a run's messages that have none: a random
// prefix and the message's index.
type idGenerator struct {
	prefix string
	recent strings.Builder // the latest ids, which share an allocation
}

func newIDGenerator() idGenerator { return idGenerator{prefix: rand.Text()[:idPrefix]} }

// id generates the id of the message with this index.
func (g *idGenerator) id(index int64) string {
	if g.recent.Cap()-g.recent.Len() < idPrefix+idDigits {
		g.recent = strings.Builder{}
		g.recent.Grow(1 << 10)
	}
	begin := g.recent.Len()
	var digits [idDigits]byte
	g.recent.WriteString(g.prefix)
	g.recent.Write(strconv.AppendInt(digits[:0], index, 36))
	return g.recent.String()[begin:]
}

// again returns what id has returned for an index. It is safe for concurrent use.
func (g *idGenerator) again(index int64) string { return g.prefix + strconv.FormatInt(index, 36) }
