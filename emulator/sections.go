package emulator

import "github.com/sluice-go/sluice/emulator/internal/amqp"

// eachSection calls f for each section of an encoded message, with the bytes after it.
// The sections must be in order and include a body (AMQP 1.0, section 3.2).
func eachSection(message []byte, f func(sec amqp.Section, rest []byte) error) error {
	last, body := byte(0), false
	for len(message) > 0 {
		sec, rest, err := amqp.NextSection(message)
		if err != nil {
			return err
		}
		if sec.Code < last || sec.Code == last && sec.Code != amqp.SectionData && sec.Code != amqp.SectionSequence {
			return amqp.Errorf(amqp.CondDecode, "section %#02x of a message follows section %#02x", sec.Code, last)
		}
		if err := f(sec, rest); err != nil {
			return err
		}
		message, last = rest, sec.Code
		body = body || sec.Code >= amqp.SectionData && sec.Code <= amqp.SectionValue
	}
	if !body {
		return errNoBody
	}
	return nil
}

var errNoBody = amqp.Errorf(amqp.CondDecode, "the message has no body")
