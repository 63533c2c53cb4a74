package driver

import (
	"fmt"
	"strings"
	"time"
)

// Values that .NET's clients send as AMQP types of their own. As a property of an event they keep
// their type, so that a message with the property is sent with the same one. Other programs get
// their text.
type (
	// DateTimeOffset is a time: ticks of 100 ns in UTC since the year 1. .NET's clients send no
	// offset with it.
	DateTimeOffset int64
	// TimeSpan is a duration in ticks of 100 ns.
	TimeSpan int64
	// URI is an address, absolute or relative.
	URI string
)

const (
	ticksPerSecond = 10_000_000
	// MaxDateTimeOffset is the end of the year 9999. Less than 0 is no time either.
	MaxDateTimeOffset DateTimeOffset = 3_155_378_975_999_999_999
	// unixEpoch is the time in Unix seconds of tick 0.
	unixEpoch = -62_135_596_800
)

// Time returns the time in UTC.
func (d DateTimeOffset) Time() time.Time {
	return time.Unix(int64(d)/ticksPerSecond+unixEpoch, int64(d)%ticksPerSecond*100).UTC()
}

// String returns the time as RFC 3339 has it.
func (d DateTimeOffset) String() string { return d.Time().Format(time.RFC3339Nano) }

// MarshalText implements [encoding.TextMarshaler].
func (d DateTimeOffset) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// Duration returns the duration, the longest that Go has instead of one of more than 292 years.
func (s TimeSpan) Duration() time.Duration {
	const most = (1<<63 - 1) / 100
	switch {
	case s > most:
		return 1<<63 - 1
	case s < -most:
		return -1 << 63
	}
	return time.Duration(s) * 100
}

// String returns hours, minutes and seconds, such as 26:03:04.5, a form in which databases read
// durations.
func (s TimeSpan) String() string {
	sign, ticks := "", uint64(s)
	if s < 0 {
		sign, ticks = "-", -ticks
	}
	seconds := ticks / ticksPerSecond
	text := fmt.Sprintf("%s%02d:%02d:%02d", sign, seconds/3600, seconds/60%60, seconds%60)
	if fraction := ticks % ticksPerSecond; fraction != 0 {
		text += "." + strings.TrimRight(fmt.Sprintf("%07d", fraction), "0")
	}
	return text
}

// MarshalText implements [encoding.TextMarshaler].
func (s TimeSpan) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// String returns the address.
func (u URI) String() string { return string(u) }

// Descriptors of the types in AMQP.
const (
	DescriptorDateTimeOffset = "com.microsoft:datetime-offset"
	DescriptorTimeSpan       = "com.microsoft:timespan"
	DescriptorURI            = "com.microsoft:uri"
)

// Described returns the value that .NET's clients send with a descriptor, and false for one that
// none of them sends.
func Described(descriptor string, value any) (any, bool) {
	switch v := value.(type) {
	case int64:
		switch {
		case descriptor == DescriptorDateTimeOffset && v >= 0 && v <= int64(MaxDateTimeOffset):
			return DateTimeOffset(v), true
		case descriptor == DescriptorTimeSpan:
			return TimeSpan(v), true
		}
	case string:
		if descriptor == DescriptorURI {
			return URI(v), true
		}
	}
	return nil, false
}
