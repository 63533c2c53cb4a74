package stamp

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/idset"
)

// Stamp is what a message of one stage says about its cause, so that a sluice.Transactional
// next stage can detect duplicates.
//
// A stamp belongs to one message. If a program copies the properties of a stamped event
// to several messages, all have the same id and the next stage drops all but the first.
// A program that makes messages from such an event gives each its own stamp ([Of],
// or sender.Stamped) or removes it ([Drop]).
type Stamp struct {
	ID    CausationID
	Epoch int64 // of the lease under which the message was made
	// Low is the watermark: the number of the event up to which the emitter's
	// checkpoint had been stored when it made the message; -1 if none. Every message
	// of those events has been accepted, and none of them will be sent again, with the
	// exception of redriven dead letters.
	Low int64
	// Parked says which of the events up to Low are dead letters, so that the ids of
	// those of their messages that were accepted are kept for the redrive. Empty: none.
	Parked string
	// Redrive says that the event is a dead letter that is redriven: it comes out of
	// order, and the watermark says nothing about it.
	Redrive bool
}

// The application properties that carry a stamp. Where a log's properties are texts, as the
// headers of Kafka are, the numbers are decimal and the bool is "true".
const (
	propertyID     = "sluice-id"     // string
	propertyEpoch  = "sluice-epoch"  // int64
	propertyLow    = "sluice-low"    // int64
	propertyParked = "sluice-parked" // string; there only if not empty
	propertyRetry  = "sluice-retry"  // bool; there only if true
	// propertySignature is a string; there only if the emitter has a key.
	propertySignature = "sluice-signature"
)

// SetTo writes the stamp into a message's application properties and replaces one that is
// there. It removes a signature; [Sign] adds one.
func (s Stamp) SetTo(properties map[string]any) {
	properties[propertyID] = s.ID.String()
	properties[propertyEpoch] = s.Epoch
	properties[propertyLow] = s.Low
	delete(properties, propertyParked)
	delete(properties, propertyRetry)
	delete(properties, propertySignature)
	if s.Parked != "" {
		properties[propertyParked] = s.Parked
	}
	if s.Redrive {
		properties[propertyRetry] = true
	}
}

// Drop removes the stamp from a message's application properties, if there is one. It
// is for programs that pass on the properties of a stamped event without being a stage,
// for example a tool that queues messages again. A message without a stamp is never a
// duplicate.
func Drop(properties map[string]any) {
	for _, name := range propertyNames {
		delete(properties, name)
	}
}

// propertyNames are the names of all that a stamp may have.
var propertyNames = []string{propertyID, propertyEpoch, propertyLow, propertyParked, propertyRetry, propertySignature}

// DropHeaders returns headers without the stamp, as [Drop] does for properties. The headers
// given are not changed.
func DropHeaders(headers []driver.Header) []driver.Header {
	ofStamp := func(h driver.Header) bool { return slices.Contains(propertyNames, h.Name) }
	if !slices.ContainsFunc(headers, ofStamp) {
		return headers
	}
	return slices.DeleteFunc(slices.Clone(headers), ofStamp)
}

// From reads the stamp in an event's application properties and reports whether there
// is one. A missing epoch is 0; a missing watermark means none. The stamp is the event's:
// messages that are made from the event must not inherit it (see [Stamp]).
func From(properties map[string]any) (Stamp, bool, error) {
	text, there, err := textOf(properties)
	if !there || err != nil {
		return Stamp{}, false, err
	}
	id, err := ParseCausationID(text)
	if err != nil {
		return Stamp{}, false, err
	}
	s := Stamp{ID: id}
	if err := s.readMarks(properties); err != nil {
		return Stamp{}, false, fmt.Errorf("stamp of %s: %w", text, err)
	}
	return s, true, nil
}

// textOf returns the id of a stamp, not parsed.
func textOf(properties map[string]any) (string, bool, error) {
	if _, there := properties[propertyID]; !there {
		return "", false, nil
	}
	text, err := stringOf(properties, propertyID)
	return text, err == nil, err
}

// readMarks reads what a stamp says besides its id, which is set. It allocates nothing.
func (s *Stamp) readMarks(properties map[string]any) (err error) {
	if s.Epoch, err = numberOf(properties, propertyEpoch, 0); err != nil {
		return err
	}
	if s.Low, err = numberOf(properties, propertyLow, -1); err != nil {
		return err
	}
	if s.Parked, err = stringOf(properties, propertyParked); err != nil {
		return err
	}
	switch v := properties[propertyRetry].(type) {
	case nil:
	case bool:
		s.Redrive = v
	case string:
		if s.Redrive, err = strconv.ParseBool(v); err != nil {
			return fmt.Errorf("property %s is %.20q, want true or false", propertyRetry, v)
		}
	default:
		return fmt.Errorf("property %s is a %T, want a bool", propertyRetry, v)
	}
	if s.Low >= s.ID.Sequence && !s.Redrive {
		// A checkpoint never passes an event before its messages are accepted.
		return fmt.Errorf("property %s is %d, want less than the event's own number, %d", propertyLow, s.Low, s.ID.Sequence)
	}
	return nil
}

// stringOf reads a text, empty if there is no such property.
func stringOf(properties map[string]any, name string) (string, error) {
	switch v := properties[name].(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case []byte:
		return string(v), nil
	default:
		return "", fmt.Errorf("property %s is a %T, want a string", name, v)
	}
}

// numberOf reads a number, whose width may have changed on the way, or which became a text.
// It returns absent if there is no such property.
func numberOf(properties map[string]any, name string, absent int64) (int64, error) {
	n := absent
	switch v := properties[name].(type) {
	case nil:
	case int64:
		n = v
	case int32:
		n = int64(v)
	case int:
		n = int64(v)
	case string:
		var err error
		if n, err = strconv.ParseInt(v, 10, 64); err != nil {
			return 0, fmt.Errorf("property %s is %.20q, want a number", name, v)
		}
	default:
		return 0, fmt.Errorf("property %s is a %T, want an int64", name, v)
	}
	if n < absent {
		return 0, fmt.Errorf("property %s is %d, want at least %d", name, n, absent)
	}
	return n, nil
}

// Emission is what the contexts hold in which AtLeastOnce makes and submits records. It is a
// [driver.Emission].
type Emission struct {
	driver.FencingToken
	source      *idSource
	incarnation string                     // of the topic, that the event is of
	watermark   *atomic.Pointer[Watermark] // as of now
	redrive     bool                       // of a dead letter
}

// NewEmission makes the emission of an event of an incarnation of the topic, under the lease of
// token. The stamps made in its context carry the watermark of that moment. redrive says that the
// event is a dead letter.
func NewEmission(token driver.FencingToken, topic *driver.Topic, incarnation string, mark *atomic.Pointer[Watermark], redrive bool) *Emission {
	return &Emission{token, idSourceOf(topic, incarnation), incarnation, mark, redrive}
}

// Watermark says how far an emitter's checkpoint was stored, and which of the events up to
// there are dead letters, as in [Stamp].Parked.
type Watermark struct {
	low    int64
	parked string
}

const (
	// maxParkedSent is how many dead letters a stamp names: they take room in every
	// message.
	maxParkedSent = 16
	// maxParkedRead is how many are read from one stamp.
	maxParkedRead = 1000
)

// NewWatermark makes the watermark of a checkpoint, given the dead letters after and before
// it in ascending order. If there are too many, the latest are named, and the others are
// covered by a number that none of them exceeds.
func NewWatermark(low int64, parked []int64) *Watermark {
	low = max(low, driver.Origin.Sequence)
	n, _ := slices.BinarySearch(parked, low+1)
	parked = parked[:n]
	if n == 0 {
		return &Watermark{low: low}
	}
	floor := driver.Origin.Sequence
	if n > maxParkedSent {
		floor, parked = parked[n-maxParkedSent-1], parked[n-maxParkedSent:]
	}
	ids := make([]idset.ID, len(parked))
	for i, sequence := range parked {
		ids[i].Sequence = sequence
	}
	return &Watermark{low: low, parked: fmt.Sprintf("%d/%s", floor, idset.Encode(ids))}
}

// eachParked reads [Stamp].Parked. Every event up to floor may be a dead letter, and so is
// each that is yielded.
func eachParked(text string, yield func(sequence int64)) (floor int64, err error) {
	first, list, ok := strings.Cut(text, "/")
	floor, err = strconv.ParseInt(first, 10, 64)
	if !ok || err != nil || floor < driver.Origin.Sequence {
		return driver.Origin.Sequence, fmt.Errorf("property %s is %.80q, want what an emitter writes", propertyParked, text)
	}
	if err := idset.Decode(list, maxParkedRead, func(id idset.ID) { yield(id.Sequence) }); err != nil {
		return floor, fmt.Errorf("property %s is %.80q: %w", propertyParked, text, err)
	}
	return floor, nil
}

// EventIncarnation implements [driver.Emission].
func (e *Emission) EventIncarnation() string { return e.incarnation }

// Of makes the stamp of message n of those that event e causes. It works in the contexts that
// sluice.AtLeastOnce calls records and [driver.Sink].Submit with, and reports whether ctx is one.
func Of(ctx context.Context, e *driver.Event, n int) (Stamp, bool) {
	em, ok := driver.EmissionOf(ctx).(*Emission)
	if !ok {
		return Stamp{}, false
	}
	mark := em.watermark.Load()
	return Stamp{
		ID:    CausationID{Source: em.source.source(e), Partition: e.Partition, Sequence: e.Sequence, N: n},
		Epoch: em.Lease.Epoch, Low: mark.low, Parked: mark.parked, Redrive: em.redrive,
	}, true
}

// CausationSource returns [CausationID].Source of the messages that a stage makes of an event of a
// topic, which has the stage's consumer group.
func CausationSource(topic *driver.Topic, e *driver.Event) string {
	return idSourceOf(topic, topic.Incarnation).source(e)
}

// Foreign reports whether a stamp is of another stage than the one whose records and
// submissions have ctx. It is false if [Of] does not work in ctx.
func Foreign(ctx context.Context, s Stamp) bool {
	em, ok := driver.EmissionOf(ctx).(*Emission)
	return ok && !em.source.has(s.ID.Source)
}

// maxTopicLen is how much of a topic's name causation ids carry, in bytes.
const maxTopicLen = 64

// idSource names the source in the causation ids of what an emitter reads. In a topic that is
// Sparse it depends on the event's history: a log that loses events gives their numbers to others,
// whose messages must not be taken for theirs. It is safe for concurrent use.
type idSource struct {
	stage  string // what the sources of all events have in common
	sparse bool
	last   atomic.Pointer[historySource] // of the last event
}

type historySource struct{ history, source string }

// idSourceOf returns the source of the events of an incarnation. Dead letters may be of an earlier
// one, or of lost events.
func idSourceOf(topic *driver.Topic, incarnation string) *idSource {
	if topic.Sparse {
		incarnation, _, _ = driver.CutLost(incarnation)
	}
	return &idSource{stage: sourceOf(topic.Group, incarnation), sparse: topic.Sparse}
}

// source returns [CausationID].Source.
func (s *idSource) source(e *driver.Event) string {
	if !s.sparse {
		return s.stage
	}
	history := e.Position().History()
	if history == "" {
		return s.stage
	}
	last := s.last.Load()
	if last == nil || last.history != history {
		digest := sha256.Sum256([]byte(history))
		last = &historySource{history, fmt.Sprintf("%s.%x", s.stage, digest[:4])}
		s.last.Store(last)
	}
	return last.source
}

// has reports whether a source is one that of returns.
func (s *idSource) has(source string) bool {
	rest, is := strings.CutPrefix(source, s.stage)
	return is && (rest == "" || s.sparse && rest[0] == '.')
}

// sourceOf returns what [CausationID].Source begins with.
func sourceOf(group driver.Group, incarnation string) string {
	h := sha256.New()
	for _, part := range []string{group.Namespace, group.Topic, group.Name, incarnation} {
		fmt.Fprintf(h, "%d %s ", len(part), part)
	}
	return fmt.Sprintf("%s@%x", topicPart(group.Topic), h.Sum(nil)[:8])
}

// topicPart returns what causation ids carry of a topic's name.
func topicPart(topic string) string { return fmt.Sprintf("%.*s", maxTopicLen, topic) }
