package audit

import (
	"cmp"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/idset"
	"github.com/sluice-go/sluice/stamp"
)

// maxSeenWords bounds the ids that are remembered of a partition: 96 MiB, with up to 64
// ids in a word.
const maxSeenWords = 4 << 20

// seenIDs are the causation ids of the messages in a partition's log so far. The zero value
// is empty.
type seenIDs struct {
	origins map[seenOrigin]*idset.Set
	words   int
	bound   int  // of words; 0: maxSeenWords
	full    bool // an id was not remembered
}

type seenOrigin struct{ source, partition string }

// add adds the id of an event and reports whether it was there. It also reports true where
// that is not known: for an event without an id, and once s is full.
func (s *seenIDs) add(stamps *stamp.Reader, e *driver.Event) bool {
	if len(e.Properties) == 0 || s.full {
		return true
	}
	stamp, is, err := stamps.Read(e.Properties)
	if !is || err != nil {
		return true
	}
	if s.words > cmp.Or(s.bound, maxSeenWords) {
		s.full = true
		return true
	}
	of := seenOrigin{stamp.ID.Source, stamp.ID.Partition}
	set := s.origins[of]
	if set == nil {
		if s.origins == nil {
			s.origins = map[seenOrigin]*idset.Set{}
		}
		set = &idset.Set{}
		s.origins[of] = set
		s.words++ // so that empty sets are bounded too
	}
	id := idset.ID{Sequence: stamp.ID.Sequence, N: int32(stamp.ID.N)}
	if set.Has(id) {
		return true
	}
	before := set.Words()
	set.Add(id)
	s.words += set.Words() - before
	return false
}
