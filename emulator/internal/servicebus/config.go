package servicebus

import (
	"fmt"
	"time"
)

// Status is what may be done with an entity.
type Status byte

const (
	// Enabled lets all be done.
	Enabled Status = iota
	// Disabled forbids to send and to receive.
	Disabled
	// SendDisabled forbids to send. A subscription gets its topic's messages all the same.
	SendDisabled
	// ReceiveDisabled forbids to receive.
	ReceiveDisabled
)

func (s Status) noSending() bool   { return s == Disabled || s == SendDisabled }
func (s Status) noReceiving() bool { return s == Disabled || s == ReceiveDisabled }

// QueueConfig holds the settings of a [Queue] or of a topic's subscription. The zero value works.
type QueueConfig struct {
	// Lock is how long a received message, or a session, is locked. Default 1 minute.
	Lock time.Duration
	// MaxDeliveries is how often a message may be received before it becomes a dead letter. Default 10.
	MaxDeliveries int
	// TTL is how long messages live at most. Default: for ever.
	TTL time.Duration
	// KeepExpired has messages that expire become dead letters. Default: they are dropped.
	KeepExpired bool
	// MaxBytes bounds the payloads that the queue holds, dead letters included. Default 1 GiB.
	MaxBytes int64
	// Sessions has receivers lock a session, and get its messages in order. It can't be changed.
	Sessions bool
	// Status is what may be done with it.
	Status Status
	// Metadata is the user's own text about it, up to 1,024 bytes.
	Metadata string
}

// Bounds of settings.
const (
	defaultLock          = time.Minute
	maxLock              = 5 * time.Minute
	defaultMaxDeliveries = 10
	defaultMaxBytes      = 1 << 30
	maxMetadata          = 1024
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
	switch {
	case full.Lock < 0 || full.Lock > maxLock:
		return full, fmt.Errorf("locks of %s: choose up to %s", full.Lock, maxLock)
	case full.MaxDeliveries < 0:
		return full, fmt.Errorf("at most %d deliveries: choose 1 or more", full.MaxDeliveries)
	case full.TTL < 0 || full.MaxBytes < 0:
		return full, fmt.Errorf("time to live %s, at most %d bytes: neither can be negative", full.TTL, full.MaxBytes)
	case full.Status > ReceiveDisabled:
		return full, fmt.Errorf("status %d: there is none of that number", full.Status)
	}
	return full, checkMetadata(full.Metadata)
}

// TopicConfig holds the settings of a [Topic]. The zero value works.
type TopicConfig struct {
	// TTL is how long messages live at most. Default: for ever.
	TTL time.Duration
	// MaxBytes bounds the payloads of the messages that are scheduled; each subscription has a bound of its own. Default 1 GiB.
	MaxBytes int64
	// Status is what may be done with it. While receiving is disabled, it is for all subscriptions.
	Status Status
	// Metadata is the user's own text about it, up to 1,024 bytes.
	Metadata string
}

func (c *TopicConfig) withDefaults() (TopicConfig, error) {
	var full TopicConfig
	if c != nil {
		full = *c
	}
	if full.MaxBytes == 0 {
		full.MaxBytes = defaultMaxBytes
	}
	switch {
	case full.TTL < 0 || full.MaxBytes < 0:
		return full, fmt.Errorf("time to live %s, at most %d bytes: neither can be negative", full.TTL, full.MaxBytes)
	case full.Status > ReceiveDisabled:
		return full, fmt.Errorf("status %d: there is none of that number", full.Status)
	}
	return full, checkMetadata(full.Metadata)
}

func checkMetadata(text string) error {
	if len(text) > maxMetadata {
		return fmt.Errorf("user metadata of %d bytes: choose up to %d", len(text), maxMetadata)
	}
	return nil
}
