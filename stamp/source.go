package stamp

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Source names a stage that feeds a consumer's topic and whose stamps are believed.
//
// Whoever may send to the topic can write any stamp, and a forged one can suppress the
// events of other senders: see docs/security.md. With a Key only holders of the key can
// make a stamp that is believed.
type Source struct {
	// Topic is the topic that the stage reads, not the one that it sends to.
	Topic string
	// Key is the secret with which the stage signs its stamps, of at least 16 bytes, as in
	// sender.SinkConfig. Empty: the stamps of the stage are believed without a signature.
	// While the key is replaced, name the topic twice, once with each key.
	Key []byte
}

// minStampKey is the least length of a key, in bytes.
const minStampKey = 16

// Check returns what is wrong with a source.
func (s *Source) Check() error {
	switch {
	case s.Topic == "":
		return errors.New("stamp source without a topic: name the topic that the feeding stage reads")
	case len(s.Key) > 0 && len(s.Key) < minStampKey:
		return fmt.Errorf("stamp key of %d bytes for topic %s: use at least %d random bytes", len(s.Key), s.Topic, minStampKey)
	}
	return nil
}

var (
	// ErrSource is why a stamp is not believed: no [Source] names the stage.
	ErrSource = errors.New("stamp of a stage that is not configured")
	// ErrSignature is why a stamp is not believed: its signature is missing or wrong.
	ErrSignature = errors.New("stamp without a valid signature")
	// errImplausible is why a watermark is not believed.
	errImplausible = errors.New("implausible stamp")
)

// unnamedStage is an [ErrSource] for the stage of a causation id. Its text is made only
// when it is reported.
type unnamedStage string

func (id unnamedStage) Error() string {
	source, _, _ := strings.Cut(string(id), "/")
	if i := strings.LastIndexByte(source, '@'); i >= 0 {
		source = source[:i]
	}
	return fmt.Sprintf("%v: it reads the topic %.80q", ErrSource, source)
}

func (id unnamedStage) Unwrap() error { return ErrSource }

// Reader reads the stamps of given stages, for programs that detect duplicates
// themselves. It is safe for concurrent use.
type Reader struct{ belief belief }

// NewReader makes a reader that believes the stamps of these stages.
func NewReader(from []Source) *Reader { return &Reader{newBelief(from)} }

// Read is [From] for stamps that are believed. The error is an [ErrSource] or an
// [ErrSignature] for a stamp that must not be believed.
func (r *Reader) Read(properties map[string]any) (Stamp, bool, error) {
	s, there, err := From(properties)
	if !there || err != nil {
		return Stamp{}, false, err
	}
	text, _, err := textOf(properties)
	if err == nil {
		err = r.belief.check(properties, text, &s)
	}
	if err != nil {
		return Stamp{}, false, err
	}
	return s, true, nil
}

// belief decides whose stamps are believed. The zero value believes none.
type belief []believedSource

type believedSource struct {
	prefix string // of the causation ids
	key    []byte
}

func newBelief(from []Source) belief {
	b := make(belief, len(from))
	for i, s := range from {
		b[i] = believedSource{string(appendPart(nil, topicPart(s.Topic))) + "@", s.Key}
	}
	return b
}

// check returns why a stamp, whose causation id is text, is not believed. It allocates
// nothing for a stamp that is believed without a signature.
func (b belief) check(properties map[string]any, text string, s *Stamp) error {
	refused := false
	for i := range b {
		n := len(b[i].prefix)
		if len(text) < n || !strings.EqualFold(text[:n], b[i].prefix) { // as Event Hubs compares names
			continue
		}
		if digest, _, _ := strings.Cut(text[n:], "/"); strings.Contains(digest, "@") {
			continue // another topic, whose name begins like this one
		}
		if len(b[i].key) == 0 {
			return nil
		}
		if given, _ := stringOf(properties, propertySignature); hmac.Equal([]byte(given), []byte(s.signature(text, b[i].key))) {
			return nil
		}
		refused = true
	}
	if refused {
		return ErrSignature
	}
	return unnamedStage(text)
}

// signature returns the signature of a stamp, whose causation id is text.
func (s *Stamp) signature(text string, key []byte) string {
	b := make([]byte, 0, len(text)+len(s.Parked)+40)
	b = append(b, "sluice stamp 1\x00"...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
	b = append(b, text...)
	b = binary.BigEndian.AppendUint64(b, uint64(s.Epoch))
	b = binary.BigEndian.AppendUint64(b, uint64(s.Low))
	if s.Redrive {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write(append(b, s.Parked...))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16])
}

// Sign adds a signature to the stamp in a message's application properties, for
// consumers that have the same key in sluice.Config.StampsFrom. It reports whether there is a
// stamp that can be read.
func Sign(properties map[string]any, key []byte) bool {
	s, there, err := From(properties)
	if !there || err != nil {
		return false
	}
	properties[propertySignature] = s.signature(s.ID.String(), key)
	return true
}

// Bounds of what a genuine stamp can say. They are far above what any log and any lease
// store reaches, and far below what a forged stamp needs to suppress events for good.
const (
	fastestLog    = 1_000_000 // events of a partition in a second
	fastestLeases = 10        // epochs of a partition in a second
	// benefit is added to the time between two events.
	benefit = time.Minute
	// maxFirstLow and maxFirstEpoch bound the first stamp of an origin: decades of
	// events and of epochs.
	maxFirstLow   = 1 << 50
	maxFirstEpoch = 1 << 32
)

// believed is the highest watermark and epoch of an origin that were believed, and when
// the event with the later of them was enqueued.
type believed struct {
	epoch, low int64
	enqueued   time.Time
	there      bool
}

// check returns an [errImplausible] if an event enqueued at a time can't have a stamp of an
// honest emitter.
func (b *believed) check(s *Stamp, enqueued time.Time) error {
	epoch, low := int64(maxFirstEpoch), int64(maxFirstLow)
	if b.there {
		passed := min(max(enqueued.Sub(b.enqueued), 0), rememberFor) + benefit
		seconds := int64(passed / time.Second)
		epoch, low = b.epoch+seconds*fastestLeases, b.low+seconds*fastestLog
	}
	switch {
	case s.Epoch > epoch:
		return fmt.Errorf("%w: epoch %d, where at most %d can have been reached", errImplausible, s.Epoch, epoch)
	case s.Low > low:
		return fmt.Errorf("%w: watermark %d, where at most %d can have been reached", errImplausible, s.Low, low)
	}
	return nil
}

// advance notes a stamp that is believed.
func (b *believed) advance(epoch, low int64, at time.Time) {
	if b.there && epoch <= b.epoch && low <= b.low {
		return
	}
	b.epoch, b.low, b.there = max(epoch, b.epoch), max(low, b.low), true
	if at.After(b.enqueued) {
		b.enqueued = at
	}
}
