package servicebus

import (
	"errors"
	"fmt"
	"time"
)

// Status says which operations an entity allows.
type Status byte

const (
	// Enabled allows sending and receiving.
	Enabled Status = iota
	// Disabled forbids sending and receiving.
	Disabled
	// SendDisabled forbids sending. A subscription still gets its topic's messages.
	SendDisabled
	// ReceiveDisabled forbids receiving.
	ReceiveDisabled
)

func (s Status) sendDisabled() bool    { return s == Disabled || s == SendDisabled }
func (s Status) receiveDisabled() bool { return s == Disabled || s == ReceiveDisabled }

// QueueConfig holds the settings of a [Queue] or of a topic's subscription. The zero value works.
type QueueConfig struct {
	// Lock is how long a received message, or a session, is locked. Default 1 minute,
	// at most 5.
	Lock time.Duration
	// MaxDeliveries is the delivery count at which a message becomes a dead letter.
	// Default 10.
	MaxDeliveries int
	// TTL is the time to live of messages that don't set a shorter one. Default: unlimited.
	TTL time.Duration
	// KeepExpired makes expired messages dead letters. Default: they are removed.
	KeepExpired bool
	// MaxBytes limits the bytes that the queue holds: payloads, dead letters with their
	// reasons, and session states. Default 1 GiB.
	MaxBytes int64
	// Sessions means that receivers lock a session and get its messages in order. It
	// can't be changed later.
	Sessions bool
	// DeleteIdle is after how long without use the entity is deleted, at least 5 minutes.
	// A waiting receiver uses it. Default: never.
	DeleteIdle time.Duration
	// Status says which operations are allowed.
	Status Status
	// Metadata is the user's own text, up to 1,024 bytes.
	Metadata string
	// Unbatched and KeepFilterErrors are kept for clients, and change nothing: the journal
	// batches what it writes, and no filter can fail.
	Unbatched, KeepFilterErrors bool
	// DuplicateWindow is kept for clients, and changes nothing: there is no duplicate detection.
	// From 20 seconds to 7 days. Default 10 minutes.
	DuplicateWindow time.Duration
}

// Defaults and limits of settings.
const (
	defaultLock            = time.Minute
	maxLock                = 5 * time.Minute
	defaultMaxDeliveries   = 10
	defaultMaxBytes        = 1 << 30
	maxMetadata            = 1024
	minDeleteIdle          = 5 * time.Minute
	defaultDuplicateWindow = 10 * time.Minute
	minDuplicateWindow     = 20 * time.Second
	maxDuplicateWindow     = 7 * 24 * time.Hour
)

func (c *QueueConfig) withDefaults() (QueueConfig, error) {
	var full QueueConfig
	if c != nil {
		full = *c
	}
	if full.Lock == 0 {
		full.Lock = defaultLock
	}
	if full.MaxDeliveries == 0 {
		full.MaxDeliveries = defaultMaxDeliveries
	}
	if full.MaxBytes == 0 {
		full.MaxBytes = defaultMaxBytes
	}
	if full.DuplicateWindow == 0 {
		full.DuplicateWindow = defaultDuplicateWindow
	}
	switch {
	case full.Lock < 0 || full.Lock > maxLock:
		return full, fmt.Errorf("lock duration %s: must be positive and at most %s", full.Lock, maxLock)
	case full.MaxDeliveries < 0:
		return full, fmt.Errorf("maximum delivery count %d: must be at least 1", full.MaxDeliveries)
	case full.TTL < 0 || full.MaxBytes < 0:
		return full, fmt.Errorf("time to live %s, at most %d bytes: neither may be negative", full.TTL, full.MaxBytes)
	case full.Status > ReceiveDisabled:
		return full, fmt.Errorf("status %d: unknown", full.Status)
	}
	return full, errors.Join(checkDeleteIdle(full.DeleteIdle), checkMetadata(full.Metadata), checkDuplicateWindow(full.DuplicateWindow))
}

// TopicConfig holds the settings of a [Topic]. The zero value works.
type TopicConfig struct {
	// TTL is the time to live of messages that don't set a shorter one. Default: unlimited.
	TTL time.Duration
	// MaxBytes limits the payload bytes of scheduled messages; each subscription has
	// its own limit. Default 1 GiB.
	MaxBytes int64
	// DeleteIdle is after how long without use, of the topic or a subscription, the topic
	// is deleted, at least 5 minutes. Default: never.
	DeleteIdle time.Duration
	// Status says which operations are allowed. If receiving is disabled, it is for all
	// subscriptions.
	Status Status
	// Metadata is the user's own text, up to 1,024 bytes.
	Metadata string
	// Unbatched and Unordered are kept for clients, and change nothing: the journal batches
	// what it writes, and topics keep the order.
	Unbatched, Unordered bool
	// DuplicateWindow is kept for clients, as that of a queue.
	DuplicateWindow time.Duration
}

func (c *TopicConfig) withDefaults() (TopicConfig, error) {
	var full TopicConfig
	if c != nil {
		full = *c
	}
	if full.MaxBytes == 0 {
		full.MaxBytes = defaultMaxBytes
	}
	if full.DuplicateWindow == 0 {
		full.DuplicateWindow = defaultDuplicateWindow
	}
	switch {
	case full.TTL < 0 || full.MaxBytes < 0:
		return full, fmt.Errorf("time to live %s, at most %d bytes: neither may be negative", full.TTL, full.MaxBytes)
	case full.Status > ReceiveDisabled:
		return full, fmt.Errorf("status %d: unknown", full.Status)
	}
	return full, errors.Join(checkDeleteIdle(full.DeleteIdle), checkMetadata(full.Metadata), checkDuplicateWindow(full.DuplicateWindow))
}

func checkDeleteIdle(d time.Duration) error {
	if d != 0 && d < minDeleteIdle {
		return fmt.Errorf("deletion after %s without use: must be at least %s", d, minDeleteIdle)
	}
	return nil
}

func checkDuplicateWindow(d time.Duration) error {
	if d < minDuplicateWindow || d > maxDuplicateWindow {
		return fmt.Errorf("duplicate detection window %s: must be %s to %s", d, minDuplicateWindow, maxDuplicateWindow)
	}
	return nil
}

func checkMetadata(text string) error {
	if len(text) > maxMetadata {
		return fmt.Errorf("user metadata has %d bytes: must be at most %d", len(text), maxMetadata)
	}
	return nil
}
