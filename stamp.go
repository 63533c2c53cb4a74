package sluice

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/sluice-go/sluice/driver"

	"github.com/sluice-go/sluice/internal/idset"
)

// CausationID names a message by the event that caused it, the same at each
// repeat: message number N of those that one event makes.
type CausationID struct {
	// Source names the reading that the event came from: the topic, and behind
	// it a digest of namespace, topic, its incarnation and the consumer group.
	// So ids don't meet where a hub was created anew, or where two stages
	// that read one hub feed the same next one.
	Source    string
	Partition string // of the event
	Sequence  int64  // of the event, at least 0
	N         int    // from 0 on
}

// maxChainID bounds the text of a chain id.
const maxChainID = 512

// String gives source/partition/sequence/n. In source and partition slashes,
// percent signs, spaces and what is not printable ASCII are percent-encoded.
func (id CausationID) String() string {
	b := make([]byte, 0, len(id.Source)+len(id.Partition)+24)
	b = append(appendPart(b, id.Source), '/')
	b = append(appendPart(b, id.Partition), '/')
	b = append(strconv.AppendInt(b, id.Sequence, 10), '/')
	return string(strconv.AppendInt(b, int64(id.N), 10))
}

// plain tells whether a byte stands for itself in a part of an id.
func plain(c byte) bool { return c > ' ' && c < 0x7f && c != '/' && c != '%' }

func appendPart(b []byte, part string) []byte {
	const digits = "0123456789ABCDEF"
	for i := range len(part) {
		if c := part[i]; plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', digits[c>>4], digits[c&15])
		}
	}
	return b
}

var errChainID = errors.New("want source/partition/sequence/n")

// ParseCausationID reads what [CausationID.String] wrote, and nothing else: an id has
// one text.
func ParseCausationID(text string) (CausationID, error) {
	origin, sequence, n, err := cutChainID(text)
	if err != nil {
		return CausationID{}, fmt.Errorf("chain id %.80q: %w", text, err)
	}
	source, partition, _ := strings.Cut(origin, "/")
	id := CausationID{Sequence: sequence, N: n}
	if id.Source, err = readPart(source); err == nil {
		id.Partition, err = readPart(partition)
	}
	if err != nil {
		return CausationID{}, fmt.Errorf("chain id %.80q: %w", text, err)
	}
	return id, nil
}

// cutChainID parts an id's origin (source and partition, as they are written)
// from its numbers. It allocates nothing.
func cutChainID(text string) (origin string, sequence int64, n int, err error) {
	if len(text) > maxChainID {
		return "", 0, 0, fmt.Errorf("longer than %d bytes", maxChainID)
	}
	last := strings.LastIndexByte(text, '/')
	if last < 0 {
		return "", 0, 0, errChainID
	}
	middle := strings.LastIndexByte(text[:last], '/')
	if middle < 0 || strings.Count(text[:middle], "/") != 1 {
		return "", 0, 0, errChainID
	}
	sequence, err = readNumber(text[middle+1:last], 63)
	if err != nil {
		return "", 0, 0, err
	}
	number, err := readNumber(text[last+1:], 31)
	if err != nil {
		return "", 0, 0, err
	}
	return text[:middle], sequence, int(number), nil
}

// readNumber reads a number as [strconv.AppendInt] writes those from 0 on.
func readNumber(text string, bits int) (int64, error) {
	if text == "" || len(text) > 1 && text[0] == '0' || text[0] == '+' {
		return 0, errChainID
	}
	n, err := strconv.ParseUint(text, 10, bits)
	if err != nil {
		return 0, errChainID
	}
	return int64(n), nil
}

func readPart(text string) (string, error) {
	encoded := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case plain(c):
		case c == '%' && i+2 < len(text) && nibble(text[i+1]) < 16 && nibble(text[i+2]) < 16 && !plain(nibble(text[i+1])<<4|nibble(text[i+2])):
			encoded = true
			i += 2
		default:
			return "", errors.New("not encoded as ids are")
		}
	}
	if !encoded {
		return text, nil
	}
	b := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			b = append(b, text[i])
			continue
		}
		b = append(b, nibble(text[i+1])<<4|nibble(text[i+2]))
		i += 2
	}
	return string(b), nil
}

// nibble is the value of a hexadecimal digit, 16 if it is none.
func nibble(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	}
	return 16
}

// Stamp is what a message of one stage tells the next, so that a
// [Transactional] one can tell repeats.
//
// It belongs to one message. Where the properties of an event that has one are
// copied to several messages, all have the same id, and the next stage drops all
// but the first. Who makes messages of such an event gives each its own stamp
// ([StampOf], or sender.Stamped), or takes it off ([DropStamp]).
type Stamp struct {
	ID    CausationID
	Epoch int64 // of the lease under which the message was made
	// Low is the watermark: the number of the event up to which the emitter's
	// checkpoint had been stored when it made the message; -1 if none. Of
	// those events every message has been accepted, and none will be sent
	// again, but for retries of dead letters.
	Low int64
	// Parked says which of the events up to Low are dead letters, so that the
	// ids of those of their messages that got through are kept for the
	// retry. Empty: none.
	Parked string
	// Redrive says that the event is a dead letter that is tried again: it comes
	// out of order, and the watermark says nothing about it.
	Redrive bool
}

// The application properties that carry a stamp.
const (
	propertyID     = "sluice-id"     // string
	propertyEpoch  = "sluice-epoch"  // int64
	propertyLow    = "sluice-low"    // int64
	propertyParked = "sluice-parked" // string; there only if not empty
	propertyRetry  = "sluice-retry"  // bool; there only if true
)

// SetTo writes the stamp into a message's application properties, over one
// that is there.
func (s Stamp) SetTo(properties map[string]any) {
	properties[propertyID] = s.ID.String()
	properties[propertyEpoch] = s.Epoch
	properties[propertyLow] = s.Low
	delete(properties, propertyParked)
	delete(properties, propertyRetry)
	if s.Parked != "" {
		properties[propertyParked] = s.Parked
	}
	if s.Redrive {
		properties[propertyRetry] = true
	}
}

// DropStamp removes the stamp from a message's application properties, if there
// is one. It is for those who pass on the properties of a stamped event without
// being a stage themselves: a function of one's own, a tool that queues again.
// Without a stamp a message is no repeat of any other.
func DropStamp(properties map[string]any) {
	for _, name := range []string{propertyID, propertyEpoch, propertyLow, propertyParked, propertyRetry} {
		delete(properties, name)
	}
}

// StampFrom reads the stamp in an event's application properties, and tells
// whether there is one. Without an epoch that is 0, without a watermark there
// is none. It is the stamp of the event: messages that are made of it must not
// inherit it (see [Stamp]).
func StampFrom(properties map[string]any) (Stamp, bool, error) {
	text, there, err := stampText(properties)
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

// stampText is the id of a stamp, unread.
func stampText(properties map[string]any) (string, bool, error) {
	if _, there := properties[propertyID]; !there {
		return "", false, nil
	}
	text, err := stampString(properties, propertyID)
	return text, err == nil, err
}

// readMarks reads what a stamp says besides its id, which is known. It allocates
// nothing.
func (s *Stamp) readMarks(properties map[string]any) (err error) {
	if s.Epoch, err = stampNumber(properties, propertyEpoch, 0); err != nil {
		return err
	}
	if s.Low, err = stampNumber(properties, propertyLow, -1); err != nil {
		return err
	}
	if s.Parked, err = stampString(properties, propertyParked); err != nil {
		return err
	}
	switch v := properties[propertyRetry].(type) {
	case nil:
	case bool:
		s.Redrive = v
	default:
		return fmt.Errorf("property %s is a %T, want a bool", propertyRetry, v)
	}
	if s.Low >= s.ID.Sequence && !s.Redrive {
		// No checkpoint passes an event before its messages are there.
		return fmt.Errorf("property %s is %d, want less than the event's own number, %d", propertyLow, s.Low, s.ID.Sequence)
	}
	return nil
}

// stampString reads a text, empty where there is no such property.
func stampString(properties map[string]any, name string) (string, error) {
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

// stampNumber reads a number, which on its way may have become one of another
// width. It is absent where there is no such property.
func stampNumber(properties map[string]any, name string, absent int64) (int64, error) {
	n := absent
	switch v := properties[name].(type) {
	case nil:
	case int64:
		n = v
	case int32:
		n = int64(v)
	case int:
		n = int64(v)
	default:
		return 0, fmt.Errorf("property %s is a %T, want an int64", name, v)
	}
	if n < absent {
		return 0, fmt.Errorf("property %s is %d, want at least %d", name, n, absent)
	}
	return n, nil
}

// emission is what the contexts know in which [AtLeastOnce] makes and submits
// records.
type emission struct {
	FencingToken
	source    string                     // of the chain ids
	watermark *atomic.Pointer[watermark] // as of now
	redrive   bool                       // of a dead letter
}

// watermark is how far an emitter's checkpoint was stored, and which of the
// events up to there are dead letters, as [Stamp].Parked.
type watermark struct {
	low    int64
	parked string
}

const (
	// mostParked is how many dead letters a stamp names: they take room in every
	// message.
	mostParked = 16
	// mostRead is how many are read in one.
	mostRead = 1000
)

// newWatermark makes the mark of a checkpoint, given the dead letters behind
// and before it in ascending order. Where there are too many, the latest are
// named, and the others are told by a number that none of them is above.
func newWatermark(low int64, parked []int64) *watermark {
	low = max(low, driver.Origin.Sequence)
	n, _ := slices.BinarySearch(parked, low+1)
	parked = parked[:n]
	if n == 0 {
		return &watermark{low: low}
	}
	floor := driver.Origin.Sequence
	if n > mostParked {
		floor, parked = parked[n-mostParked-1], parked[n-mostParked:]
	}
	ids := make([]idset.ID, len(parked))
	for i, sequence := range parked {
		ids[i].Sequence = sequence
	}
	return &watermark{low: low, parked: fmt.Sprintf("%d/%s", floor, idset.Encode(ids))}
}

// eachParked reads [Stamp].Parked: every event up to floor may be a dead
// letter, and those that are handed out.
func eachParked(text string, yield func(sequence int64)) (floor int64, err error) {
	first, list, ok := strings.Cut(text, "/")
	floor, err = strconv.ParseInt(first, 10, 64)
	if !ok || err != nil || floor < driver.Origin.Sequence {
		return driver.Origin.Sequence, fmt.Errorf("property %s is %.80q, want what an emitter writes", propertyParked, text)
	}
	if err := idset.Decode(list, mostRead, func(id idset.ID) { yield(id.Sequence) }); err != nil {
		return floor, fmt.Errorf("property %s is %.80q: %w", propertyParked, text, err)
	}
	return floor, nil
}

type emissionKey struct{}

// StampOf makes the stamp of message n of those that event e causes. It
// works in the contexts that [AtLeastOnce] calls records and [Sink].Submit
// with, and tells whether ctx is one.
func StampOf(ctx context.Context, e *Event, n int) (Stamp, bool) {
	em, ok := ctx.Value(emissionKey{}).(*emission)
	if !ok {
		return Stamp{}, false
	}
	mark := em.watermark.Load()
	return Stamp{
		ID:    CausationID{Source: em.source, Partition: e.Partition, Sequence: e.Sequence, N: n},
		Epoch: em.Lease.Epoch, Low: mark.low, Parked: mark.parked, Redrive: em.redrive,
	}, true
}

// mostTopic is how much of a topic's name chain ids carry.
const mostTopic = 64

// sourceOf names the reading of a topic for [CausationID].Source.
func sourceOf(group Group, incarnation string) string {
	h := sha256.New()
	for _, part := range []string{group.Namespace, group.Topic, group.Name, incarnation} {
		fmt.Fprintf(h, "%d %s ", len(part), part)
	}
	return fmt.Sprintf("%.*s@%x", mostTopic, group.Topic, h.Sum(nil)[:8])
}
