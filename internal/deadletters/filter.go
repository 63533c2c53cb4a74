package deadletters

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice/driver"
)

// MaxFilterLength is the longest text that [ParseFilter] accepts, in bytes.
const MaxFilterLength = 4096

const forms = "partition=P, status=dead|retry|discarded, key=K, error~TEXT, since=TIME, before=TIME, sequence=N, sequence=N..M"

// Parse turns conditions into a filter. Times are RFC 3339, or like "24h ago"
// before now.
func ParseFilter(text string, now time.Time) (driver.DeadLetterFilter, error) {
	var f driver.DeadLetterFilter
	if len(text) > MaxFilterLength {
		return f, fmt.Errorf("conditions of %d bytes: the limit is %d bytes", len(text), MaxFilterLength)
	}
	seen := make(map[string]bool)
	for rest := text; ; {
		c, tail, err := next(rest)
		if err != nil {
			return f, err
		}
		if seen[c.word] {
			return f, fmt.Errorf("condition %q: given twice", c.word)
		}
		seen[c.word] = true
		if err := c.apply(&f, now); err != nil {
			return f, err
		}
		if tail == "" {
			return f, nil
		}
		rest = tail[1:]
	}
}

type condition struct {
	word     string
	operator byte // '=' or '~'
	value    string
}

// next splits off the first condition. The tail is empty or begins with a comma.
func next(text string) (c condition, tail string, err error) {
	at := strings.IndexAny(text, "=~,")
	if at < 0 || text[at] == ',' {
		if at >= 0 {
			text = text[:at]
		}
		return c, "", fmt.Errorf("condition %q: write it like one of %s", strings.TrimSpace(text), forms)
	}
	c.word, c.operator = strings.TrimSpace(text[:at]), text[at]
	value := strings.TrimLeft(text[at+1:], " \t")
	if strings.HasPrefix(value, `"`) {
		c.value, tail, err = unquote(value[1:])
	} else if comma := strings.IndexByte(value, ','); comma >= 0 {
		c.value, tail = strings.TrimSpace(value[:comma]), value[comma:]
	} else {
		c.value = strings.TrimSpace(value)
	}
	switch {
	case err != nil:
		return c, "", fmt.Errorf("condition %q: %w", c.word, err)
	case c.value == "":
		return c, "", fmt.Errorf("condition %q: the value is missing", c.word)
	}
	return c, tail, nil
}

// unquote reads up to the closing quote.
func unquote(text string) (value, tail string, err error) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
			if i == len(text) || (text[i] != '"' && text[i] != '\\') {
				return "", "", errors.New(`a backslash can only stand before a quote or a backslash`)
			}
			b.WriteByte(text[i])
		case '"':
			tail = strings.TrimLeft(text[i+1:], " \t")
			if tail != "" && tail[0] != ',' {
				return "", "", errors.New("a comma must follow the closing quote")
			}
			return b.String(), tail, nil
		default:
			b.WriteByte(text[i])
		}
	}
	return "", "", errors.New("the closing quote is missing")
}

func (c condition) apply(f *driver.DeadLetterFilter, now time.Time) (err error) {
	want := byte('=')
	switch c.word {
	case "partition":
		f.Partition = c.value
	case "status":
		f.Status, err = statuses(c.value)
	case "key":
		f.Key = c.value
	case "error":
		want = '~'
		f.ErrorContains = c.value
	case "since":
		f.FailedSince, err = moment(c.value, now)
	case "before":
		f.FailedBefore, err = moment(c.value, now)
	case "sequence":
		f.FirstSequence, f.LastSequence, err = span(c.value)
	default:
		return fmt.Errorf("unknown condition %q: use one of %s", c.word, forms)
	}
	if err != nil {
		return fmt.Errorf("condition %q: %w", c.word, err)
	}
	if c.operator != want {
		return fmt.Errorf("condition %q: write it as %s%c", c.word, c.word, want)
	}
	return nil
}

func statuses(text string) (list []driver.DeadLetterStatus, err error) {
	for word := range strings.SplitSeq(text, "|") {
		s := driver.DeadLetterStatus(strings.TrimSpace(word))
		switch s {
		case driver.StatusDead, driver.StatusRetry, driver.StatusDiscarded:
		default:
			return nil, fmt.Errorf("%q is not one of dead, retry, discarded", string(s))
		}
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list, nil
}

func moment(text string, now time.Time) (time.Time, error) {
	if ago, ok := strings.CutSuffix(text, "ago"); ok {
		d, err := time.ParseDuration(strings.TrimSpace(ago))
		if err != nil || d <= 0 {
			return time.Time{}, fmt.Errorf("%q: write a time like 24h ago", text)
		}
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q: write a time like 2026-01-01T00:00:00Z, or 24h ago", text)
	}
	return t, nil
}

// span reads "10", "10..20", "10.." and "..20".
func span(text string) (first, last *int64, err error) {
	from, to, ranged := strings.Cut(text, "..")
	if !ranged {
		to = from
	}
	if first, err = bound(from); err != nil {
		return nil, nil, err
	}
	if last, err = bound(to); err != nil {
		return nil, nil, err
	}
	switch {
	case first == nil && last == nil:
		return nil, nil, errors.New("the range has no first and no last number")
	case first != nil && last != nil && *first > *last:
		return nil, nil, fmt.Errorf("%d..%d is empty", *first, *last)
	}
	return first, last, nil
}

func bound(text string) (*int64, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return nil, fmt.Errorf("%q is not a sequence number", text)
	}
	return &n, nil
}
