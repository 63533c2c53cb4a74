package sender

import (
	"unicode/utf8"

	"github.com/Azure/go-amqp"
)

// keyAnnotation is where a message carries its partition key.
const keyAnnotation = "x-opt-partition-key"

// maxKey is how many characters a partition key may have.
const maxKey = 128

// madeUpID is as long as the ids that the client libraries give messages that
// have none.
const madeUpID = "01234567-89ab-cdef-0123-456789abcdef"

// longer tells whether a text has more than n characters.
func longer(text string, n int) bool { return len(text) > n && utf8.RuneCountInString(text) > n }

// batchSize is how many bytes a batch of one message has. Its envelope repeats
// all of its first message but the body, and the message is a data section in
// it.
func batchSize(message *amqp.Message, body []byte) (int, error) {
	envelope, err := message.MarshalBinary()
	if err != nil {
		return 0, err
	}
	message.Data = [][]byte{body}
	whole, err := message.MarshalBinary()
	if err != nil {
		return 0, err
	}
	section := 5 // descriptor, type and a length of one byte
	if len(whole) > 255 {
		section = 8 // or four
	}
	return len(envelope) + section + len(whole), nil
}

// maxLimit is where the search for a limit ends.
const maxLimit = 64 << 20

// limitOf finds out how large a batch may be, by trial: the client libraries
// know it, and don't tell.
func limitOf(begin func() (Batch, error)) (int, error) {
	taken := 0 // bytes of the largest batch so far
	fits := func(size int) (bool, error) {
		batch, err := begin()
		if err != nil {
			return false, err
		}
		if err = batch.Add(&Message{Body: make([]byte, size)}); err == nil {
			taken = batch.Bytes()
		}
		return err == nil, nil
	}
	least, most := 0, 64<<10 // bodies; one of least bytes fits
	for {
		ok, err := fits(most)
		if err != nil {
			return 0, err
		}
		if !ok || most >= maxLimit {
			break
		}
		least, most = most, 2*most
	}
	for most-least > 1 {
		size := (least + most) / 2
		ok, err := fits(size)
		switch {
		case err != nil:
			return 0, err
		case ok:
			least = size
		default:
			most = size
		}
	}
	return taken, nil
}
