package amqp

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"
)

// decodeFrameBody decodes any performative; it is what a client, and the fuzzer, do.
func decodeFrameBody(body []byte) (p any, payload []byte, err *Error) {
	d := decoder{buf: body}
	code := d.descriptor(performativeNames)
	switch code {
	case descOpen:
		v := &open{}
		v.decode(&d)
		p = v
	case descBegin:
		v := &begin{}
		v.decode(&d)
		p = v
	case descAttach:
		v := &attach{}
		v.decode(&d)
		p = v
	case descFlow:
		v := &flow{}
		v.decode(&d)
		p = v
	case descTransfer:
		v := &transfer{}
		v.decode(&d)
		p = v
	case descDisposition:
		v := &disposition{}
		v.decode(&d)
		p = v
	case descDetach:
		v := &detach{}
		v.decode(&d)
		p = v
	case descEnd, descClose:
		v := &endOrClose{desc: code}
		v.decode(&d)
		p = v
	case descInit:
		v := &saslInit{}
		v.decode(&d)
		p = v
	default:
		d.fail("unexpected performative %#02x", code)
	}
	return p, d.rest(), d.err
}

func TestPerformativeRoundTrip(t *testing.T) {
	filter := Map{{Symbol("f"), Described{uint64(0x468C00000004), "x"}}}
	for _, p := range []performative{
		&open{containerID: "c", maxFrameSize: 65536, channelMax: 999, idleTimeOut: 120000, properties: Map{{Symbol("product"), "Sluice"}}},
		&open{maxFrameSize: 0xffffffff},
		&begin{nextOutgoingID: 7, incomingWindow: 5000, outgoingWindow: 10, handleMax: 255},
		&begin{remoteChannel: 9, hasRemote: true, handleMax: 0xffffffff},
		&attach{name: "l", handle: 3, receiver: true, sndSettle: senderSettled, source: &terminus{address: "a", filter: filter}, target: &terminus{}},
		&attach{name: "l", handle: 300, sndSettle: senderMixed, rcvSettle: receiverSecond, initialCount: 5, maxMessage: 1 << 20,
			target: &terminus{address: "a/b", durable: 2, expiry: "never", timeout: 60}, properties: Map{{Symbol("p"), int64(1)}}},
		&attach{name: "l", receiver: true, desired: []Symbol{"one", "two"}},
		&flow{nextIncomingID: 1, hasIncomingID: true, incomingWindow: 2, nextOutgoingID: 3, outgoingWindow: 4, handle: 5, hasHandle: true,
			deliveryCount: 6, hasCount: true, credit: 7, hasCredit: true, available: 8, drain: true, echo: true},
		&flow{hasIncomingID: true, incomingWindow: 2, outgoingWindow: 4},
		&transfer{handle: 256, deliveryID: 1, hasID: true, tag: []byte{0, 0, 0, 1}, format: 0x80013700, more: true},
		&transfer{deliveryID: 0xffffffff, hasID: true, tag: []byte{0xff, 0xff, 0xff, 0xff}, settled: true},
		&disposition{receiver: true, first: 3, last: 9, settled: true},
		&detach{handle: 2, closed: true, err: Errorf(CondStolen, "it is")},
		&detach{handle: 2},
		&endOrClose{desc: descEnd, err: Errorf(CondErrantLink, "x")},
		&endOrClose{desc: descClose},
	} {
		b := p.encode(nil)
		got, payload, err := decodeFrameBody(append(bytes.Clone(b), "payload"...))
		if err != nil || string(payload) != "payload" || !reflect.DeepEqual(got, p) {
			t.Errorf("%#v\nbecame %#v, payload %q, %v", p, got, payload, err)
		}
	}
}

// Frames as Azure's clients write them.
func TestPerformativesOfClients(t *testing.T) {
	for _, v := range []struct {
		name, hex string
		want      any
	}{
		{"trailing fields left out", "005310 c0 06 01 a1 03 616263", &open{containerID: "abc", maxFrameSize: 0xffffffff, channelMax: 0xffff}},
		{"descriptor in nine bytes", "00800000000000000018 45", &endOrClose{desc: descClose}},
		{"descriptor by name", "00a3 0d 616d71703a656e643a6c697374 45", &endOrClose{desc: descEnd}},
		{"list32", "005314 d00000000c 00000005 43 5201 a00101 43 41", &transfer{deliveryID: 1, hasID: true, tag: []byte{1}, settled: true}},
		{"disposition of one delivery", "005315 c0 0a 05 41 5203 40 41 005324 45",
			&disposition{receiver: true, first: 3, last: 3, settled: true, outcome: &Outcome{}}},
		{"one capability, not in an array", "005312 c013 0d a1016e 43 41 40 40 40 40 40 40 40 40 40 a3026162",
			&attach{name: "n", receiver: true, sndSettle: senderMixed, desired: []Symbol{"ab"}}},
		{"address of a link in a described filter", "005312 c0 2a 06 a1016e 43 41 40 40 005328 c0 1d 08 a10168 40 40 40 40 40 40 " +
			"c1 11 02 a30166 00 80 0000468c00000004 a10178", nil},
	} {
		b, err := hex.DecodeString(strings.ReplaceAll(v.hex, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		got, _, e := decodeFrameBody(b)
		if v.want == nil {
			v.want = &attach{name: "n", receiver: true, sndSettle: senderMixed,
				source: &terminus{address: "h", filter: Map{{Symbol("f"), Described{uint64(0x468C00000004), "x"}}}}}
		}
		if e != nil || !reflect.DeepEqual(got, v.want) {
			t.Errorf("%s: %+v, %v", v.name, got, e)
		}
	}
}

func TestMalformedPerformatives(t *testing.T) {
	for name, text := range map[string]string{
		"no performative":                  "",
		"not described":                    "45",
		"descriptor of another domain":     "00800000000100000018 45",
		"unknown descriptor":               "005399 45",
		"map in place of the list":         "005310 c101 00",
		"string where a number belongs":    "005313 c005 02 40 a10161",
		"number above 32 bits":             "005313 c00b 02 40 80 0000000100000000",
		"symbol where a string belongs":    "005310 c004 01 a30161",
		"list longer than its elements":    "005318 c002 00 40",
		"source that is a target":          "005312 c00b 06 a1016e 43 41 40 40 005329 45",
		"settlement mode that isn't one":   "005312 c009 04 a1016e 43 41 5003",
		"capability that is a string":      "005312 c013 0d a1016e 43 41 40 40 40 40 40 40 40 40 40 a1026162",
		"error that isn't described":       "005318 c003 01 45 45",
		"address that isn't a string":      "005312 c00e 06 a1016e 43 41 40 40 005328 c002 01 41",
		"properties that aren't a map":     "005310 c00c 0a a10161 40404040 40404040 45",
		"payload where fields should be":   "005314 c0ff",
		"described value cut short":        "005318 c003 01 0053",
		"performative cut in its last bit": "005310 c006 01 a1036162",
	} {
		b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
		if err != nil {
			t.Fatal(name, err)
		}
		if p, _, e := decodeFrameBody(b); e == nil {
			t.Errorf("%s: decoded as %+v", name, p)
		}
	}
}

// Azure's Python client indexes the fields of a performative without asking how many there are.
func TestEveryFieldIsPresent(t *testing.T) {
	for _, v := range []struct {
		p    performative
		want int
	}{
		{&open{}, 10}, {&begin{}, 8}, {&attach{}, 14}, {&flow{}, 11}, {&transfer{}, 11}, {&disposition{}, 6}, {&detach{}, 3},
		{&endOrClose{desc: descEnd}, 1}, {&endOrClose{desc: descClose}, 1},
	} {
		d := decoder{buf: v.p.encode(nil)}
		fields, _ := d.value().(Described).Value.(List)
		if d.err != nil || len(fields) != v.want {
			t.Errorf("%T: %d fields, want %d, %v", v.p, len(fields), v.want, d.err)
		}
	}
}

func TestTransferOverhead(t *testing.T) {
	b, at := beginFrame(nil, frameAMQP, 0xffff)
	p := transfer{handle: 0xffffffff, deliveryID: 0xffffffff, format: 0xffffffff, more: true}
	if n := len(endFrame(p.encode(b), at)); n > transferOverhead {
		t.Errorf("a transfer needs %d bytes besides its payload", n)
	}
}

func FuzzFrameBody(f *testing.F) {
	for _, p := range []performative{
		&open{containerID: "c", properties: Map{{Symbol("a"), "b"}}}, &begin{}, &flow{hasHandle: true}, &transfer{}, &disposition{},
		&attach{name: "n", source: &terminus{address: "a", filter: Map{{"a", Described{uint64(1), List{}}}}}, target: &terminus{}},
		&detach{err: Errorf(CondInternal, "x")}, &endOrClose{desc: descClose},
	} {
		f.Add(p.encode(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, _, err := decodeFrameBody(b)
		if err != nil {
			return
		}
		if p, ok := p.(performative); ok {
			encoded := p.encode(nil)
			again, _, err := decodeFrameBody(encoded)
			if err != nil {
				t.Fatalf("%#v encodes to what doesn't decode: %v", p, err)
			}
			if again, ok := again.(performative); !ok || !bytes.Equal(again.encode(nil), encoded) {
				t.Fatalf("%#v became %#v", p, again)
			}
		}
	})
}
