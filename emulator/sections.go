package emulator

import "github.com/sluice-go/sluice/internal/amqp"

// errMisplaced is a message whose delivery annotations follow a later section: see [inOrder].
var errMisplaced = amqp.Errorf(amqp.CondDecode, "the delivery annotations of a message are not in their place")

// eachSection calls f for each section of an encoded message, with the bytes after it.
// The sections must be in order (AMQP 1.0, section 3.2). A message without a body is
// accepted, as on Azure: the Go library sends an empty event like that.
func eachSection(message []byte, f func(sec amqp.Section, rest []byte) error) error {
	last := byte(0)
	for len(message) > 0 {
		sec, rest, err := amqp.NextSection(message)
		if err != nil {
			return err
		}
		if sec.Code < last || sec.Code == last && sec.Code != amqp.SectionData && sec.Code != amqp.SectionSequence {
			if sec.Code == amqp.SectionDeliveryAnnotations && last > sec.Code {
				return errMisplaced
			}
			return amqp.Errorf(amqp.CondDecode, "section %#02x of a message follows section %#02x", sec.Code, last)
		}
		if err := f(sec, rest); err != nil {
			return err
		}
		message, last = rest, sec.Code
	}
	return nil
}

// inOrder returns a copy of a message with the delivery annotations before the later sections:
// Azure's Python library puts them last. It returns an error if a section can't be decoded.
func inOrder(message []byte) ([]byte, error) {
	var before, annotations, after []byte
	for rest := message; len(rest) > 0; {
		sec, next, err := amqp.NextSection(rest)
		if err != nil {
			return nil, err
		}
		switch {
		case sec.Code == amqp.SectionDeliveryAnnotations:
			annotations = append(annotations, sec.Raw...)
		case sec.Code < amqp.SectionDeliveryAnnotations:
			before = append(before, sec.Raw...)
		default:
			after = append(after, sec.Raw...)
		}
		rest = next
	}
	return append(append(before, annotations...), after...), nil
}
