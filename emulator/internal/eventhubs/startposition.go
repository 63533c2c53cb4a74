package eventhubs

import (
	"fmt"
	"strconv"
	"time"
)

// StartPosition is where in a partition to begin reading. The zero value is the
// oldest event that the partition holds.
type StartPosition struct {
	Kind      StartKind
	Offset    string    // for [AtOffset]
	Sequence  int64     // for [AtSequence]
	Time      time.Time // for [AtTime]
	Inclusive bool      // include the event at the offset, sequence number or time itself
}

// StartKind selects the field of a [StartPosition] that is used.
type StartKind uint8

// The kinds of start position.
const (
	Earliest   StartKind = iota // the oldest event that the partition holds
	Latest                      // the next event to be appended
	AtOffset                    // an offset; "-1" is Earliest and "@latest" is Latest, as on Azure
	AtSequence                  // a sequence number
	AtTime                      // the enqueued time
)

// String describes the start for an error message.
func (s StartPosition) String() string {
	bound := "after "
	if s.Inclusive {
		bound = ""
	}
	switch s.Kind {
	case Latest:
		return "latest"
	case AtOffset:
		return bound + "offset " + strconv.Quote(s.Offset)
	case AtSequence:
		return fmt.Sprintf("%ssequence number %d", bound, s.Sequence)
	case AtTime:
		return bound + s.Time.UTC().Format(time.RFC3339Nano)
	}
	return "earliest"
}
