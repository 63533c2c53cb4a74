package amqp

import (
	"testing"
	"testing/synctest"
)

// abort is the last transfer of a message that the server gives up.
type abort struct{ transfer }

func (p abort) encode(b []byte) []byte {
	b = p.transfer.encode(b)
	b[len(b)-2] = codeTrue // the field aborted
	return b
}

// The server's flows change the credit of a link only as far as they are true.
func TestFlowsOfServer(t *testing.T) {
	const link = "link"
	state := func(count uint32) *flow {
		return &flow{incomingWindow: 10, hasHandle: true, deliveryCount: count, echo: true}
	}
	for name, c := range map[string]struct {
		sent   []performative // after the attach, for a credit of 2
		count  uint32         // in the last answer
		credit uint32
	}{
		"after a message":             {[]performative{&transfer{hasID: true}, state(1)}, 1, 1},
		"within a message":            {[]performative{&transfer{hasID: true, more: true}, state(1), &transfer{}, &transfer{hasID: true, deliveryID: 1}, state(2)}, 2, 0},
		"credit given up":             {[]performative{&transfer{hasID: true}, state(2)}, 2, 0},
		"more given up than there is": {[]performative{state(100)}, 100, 0},
		"aborted":                     {[]performative{&transfer{hasID: true, more: true}, abort{}, state(1)}, 1, 1},
		"aborted, without a count":    {[]performative{&transfer{hasID: true, more: true}, abort{}, &flow{incomingWindow: 10, hasHandle: true, echo: true}}, 1, 1},
		"out of date":                 {[]performative{&transfer{hasID: true}, &transfer{hasID: true, deliveryID: 1}, state(1)}, 2, 0},
	} {
		bubble(t, name, func(t *testing.T) {
			near, far := pipe()
			flows := make(chan *flow, 10)
			attached := make(chan struct{})
			go func() {
				answerOpen(far, &open{maxFrameSize: 512})
				go func() {
					defer close(flows)
					fr := newFrameReader(far, func() int { return 512 })
					for {
						f, err := fr.next()
						if err != nil {
							return
						}
						if p, _, _ := decodeFrameBody(f.body); p != nil {
							if p, ok := p.(*flow); ok {
								flows <- p
							}
						}
					}
				}()
				<-attached
				for _, p := range append([]performative{&begin{hasRemote: true, incomingWindow: 10}, &attach{name: link, source: &terminus{}}}, c.sent...) {
					_, _ = far.Write(encoded(p))
				}
			}()
			client, r := receiverOf(t, near, link)
			close(attached)
			synctest.Wait()
			select {
			case <-r.Arrived():
			default:
				t.Error("whoever waits for messages does not learn that credit is used")
			}
			if r.Take(nil); r.Credit() != int(c.credit) {
				t.Errorf("the receiver counts a credit of %d, want %d", r.Credit(), c.credit)
			}
			client.Close(endedContext)
			var last *flow
			for p := range flows {
				last = p
			}
			if last.deliveryCount != c.count || last.credit != c.credit {
				t.Errorf("the answer has the count %d and the credit %d, want %d and %d", last.deliveryCount, last.credit, c.count, c.credit)
			}
		})
	}
}
