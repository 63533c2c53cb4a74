package amqp

// The performatives of the transport (section 2.7). Fields that neither the server nor the client
// reads or sets are left out of the structs. Encoding writes every field of the standard, null
// where it isn't set: the standard allows omitting trailing nulls, but Azure's Python client
// requires them.

type performative interface{ encode(b []byte) []byte }

var errorNames = map[string]byte{"amqp:error:list": descError}

type open struct {
	containerID  string
	hostname     string
	maxFrameSize uint32
	channelMax   uint16
	idleTimeOut  uint32 // milliseconds
	properties   Map
}

func (p *open) decode(d *decoder) {
	f := d.openFields()
	p.containerID = f.text()
	p.hostname = f.text()
	p.maxFrameSize = f.uint32(0xffffffff)
	p.channelMax = uint16(min(f.uint32(0xffff), 0xffff))
	p.idleTimeOut = f.uint32(0)
	for range 4 { // outgoing and incoming locales, offered and desired capabilities
		f.skipField()
	}
	p.properties = f.mapping()
	f.close()
}

func (p *open) encode(b []byte) []byte {
	b, at := beginCompound(appendDescriptor(b, descOpen), codeList32)
	b = AppendString(b, p.containerID)
	if p.hostname == "" { // only clients set it
		b = appendNull(b)
	} else {
		b = AppendString(b, p.hostname)
	}
	b = appendUint(b, p.maxFrameSize)
	b = appendUshort(b, p.channelMax)
	b = appendUint(b, p.idleTimeOut)
	b = append(b, codeNull, codeNull, codeNull, codeNull)
	b = appendMap(b, p.properties)
	return endCompound(b, at, 10)
}

type begin struct {
	remoteChannel  uint16
	hasRemote      bool
	nextOutgoingID uint32
	incomingWindow uint32
	outgoingWindow uint32
	handleMax      uint32
}

func (p *begin) decode(d *decoder) {
	f := d.openFields()
	remote, ok := f.optUint32()
	p.remoteChannel, p.hasRemote = uint16(remote), ok
	p.nextOutgoingID = f.uint32(0)
	p.incomingWindow = f.uint32(0)
	p.outgoingWindow = f.uint32(0)
	p.handleMax = f.uint32(0xffffffff)
	f.close()
}

func (p *begin) encode(b []byte) []byte {
	b, at := beginCompound(appendDescriptor(b, descBegin), codeList32)
	if p.hasRemote {
		b = appendUshort(b, p.remoteChannel)
	} else {
		b = appendNull(b)
	}
	b = appendUint(b, p.nextOutgoingID)
	b = appendUint(b, p.incomingWindow)
	b = appendUint(b, p.outgoingWindow)
	b = appendUint(b, p.handleMax)
	b = append(b, codeNull, codeNull, codeNull)
	return endCompound(b, at, 8)
}

// Settlement modes of an attach (sections 2.8.2 and 2.8.3).
const (
	senderUnsettled = 0
	senderSettled   = 1
	senderMixed     = 2
	receiverFirst   = 0
	receiverSecond  = 1
)

type attach struct {
	name         string
	handle       uint32
	receiver     bool // the role of the side that sends this attach
	sndSettle    byte
	rcvSettle    byte
	source       *terminus
	target       *terminus
	initialCount uint32
	maxMessage   uint64
	desired      []Symbol // desired-capabilities
	properties   Map
}

func (p *attach) decode(d *decoder) {
	f := d.openFields()
	p.name = f.text()
	p.handle = f.uint32(0)
	p.receiver = f.bool()
	p.sndSettle = byte(min(f.uint32(senderMixed), 0xff))
	p.rcvSettle = byte(min(f.uint32(receiverFirst), 0xff))
	if p.sndSettle > senderMixed || p.rcvSettle > receiverSecond {
		f.fail("unknown settlement mode")
	}
	p.source = f.terminus(descSource)
	p.target = f.terminus(descTarget)
	f.skipField() // unsettled: resuming deliveries isn't supported
	f.skipField() // incomplete-unsettled
	p.initialCount = f.uint32(0)
	p.maxMessage = f.uint(0)
	f.skipField() // offered-capabilities
	p.desired = f.symbols()
	p.properties = f.mapping()
	f.close()
}

func (p *attach) encode(b []byte) []byte {
	b, at := beginCompound(appendDescriptor(b, descAttach), codeList32)
	b = AppendString(b, p.name)
	b = appendUint(b, p.handle)
	b = appendBool(b, p.receiver)
	b = append(b, codeUbyte, p.sndSettle, codeUbyte, p.rcvSettle)
	b = p.source.encode(b, descSource)
	b = p.target.encode(b, descTarget)
	b = appendNull(b)
	b = appendBool(b, false)
	if p.receiver {
		b = appendNull(b) // only the sender counts deliveries
	} else {
		b = appendUint(b, p.initialCount)
	}
	b = appendUlong(b, p.maxMessage)
	b = appendNull(b) // offered-capabilities
	b = appendSymbols(b, p.desired)
	b = appendMap(b, p.properties)
	return endCompound(b, at, 14)
}

// terminus is a source or a target.
type terminus struct {
	coordinator bool // of transactions: a target without the other fields

	address string
	durable uint32
	expiry  Symbol
	timeout uint32
	dynamic bool
	filter  Map // of a source
}

var terminusNames = map[string]byte{"amqp:source:list": descSource, "amqp:target:list": descTarget, "amqp:coordinator:list": descCoordinator}

func (f *fields) terminus(want byte) *terminus {
	desc, in, ok := f.described(terminusNames)
	if !ok {
		return nil
	}
	if desc == descCoordinator && want == descTarget {
		in.close()
		return &terminus{coordinator: true}
	}
	if desc != want {
		f.fail("descriptor %#02x in place of a source or target", desc)
		return nil
	}
	var t terminus
	switch a := in.any().(type) {
	case nil:
	case string:
		t.address = a
	default:
		f.fail("an address must be a string")
	}
	t.durable = in.uint32(0)
	t.expiry = in.symbol()
	t.timeout = in.uint32(0)
	t.dynamic = in.bool()
	in.skipField() // dynamic-node-properties
	if want == descSource {
		in.skipField() // distribution-mode
		t.filter = in.mapping()
	}
	in.close()
	return &t
}

func (t *terminus) encode(b []byte, desc byte) []byte {
	if t == nil {
		return appendNull(b)
	}
	b, at := beginCompound(appendDescriptor(b, desc), codeList32)
	b = AppendString(b, t.address)
	b = appendUint(b, t.durable)
	if t.expiry == "" {
		b = appendNull(b)
	} else {
		b = AppendSymbol(b, t.expiry)
	}
	b = appendUint(b, t.timeout)
	b = appendBool(b, t.dynamic)
	b = appendNull(b)
	if desc == descTarget {
		return endCompound(appendNull(b), at, 7) // capabilities
	}
	b = appendNull(b)
	b = appendMap(b, t.filter)
	b = append(b, codeNull, codeNull, codeNull) // default-outcome, outcomes, capabilities
	return endCompound(b, at, 11)
}

type flow struct {
	nextIncomingID uint32
	hasIncomingID  bool
	incomingWindow uint32
	nextOutgoingID uint32
	outgoingWindow uint32
	handle         uint32
	hasHandle      bool
	deliveryCount  uint32
	hasCount       bool
	credit         uint32
	hasCredit      bool
	available      uint32
	drain          bool
	echo           bool
}

func (p *flow) decode(d *decoder) {
	f := d.openFields()
	p.nextIncomingID, p.hasIncomingID = f.optUint32()
	p.incomingWindow = f.uint32(0)
	p.nextOutgoingID = f.uint32(0)
	p.outgoingWindow = f.uint32(0)
	p.handle, p.hasHandle = f.optUint32()
	p.deliveryCount, p.hasCount = f.optUint32()
	p.credit, p.hasCredit = f.optUint32()
	p.available = f.uint32(0)
	p.drain = f.bool()
	p.echo = f.bool()
	f.close()
}

func (p *flow) encode(b []byte) []byte {
	b, at := beginCompound(appendDescriptor(b, descFlow), codeList32)
	b = appendUint(b, p.nextIncomingID)
	b = appendUint(b, p.incomingWindow)
	b = appendUint(b, p.nextOutgoingID)
	b = appendUint(b, p.outgoingWindow)
	if p.hasHandle {
		b = appendUint(b, p.handle)
		b = appendUint(b, p.deliveryCount)
		b = appendUint(b, p.credit)
		b = appendUint(b, p.available)
	} else {
		b = append(b, codeNull, codeNull, codeNull, codeNull)
	}
	b = appendBool(b, p.drain)
	b = appendBool(b, p.echo)
	b = appendNull(b)
	return endCompound(b, at, 11)
}

type transfer struct {
	handle     uint32
	deliveryID uint32
	hasID      bool
	tag        []byte // valid as long as the frame
	format     uint32
	settled    bool
	more       bool
	aborted    bool
}

func (p *transfer) decode(d *decoder) {
	f := d.openFields()
	p.handle = f.uint32(0)
	p.deliveryID, p.hasID = f.optUint32()
	p.tag = f.binary()
	p.format = f.uint32(0)
	p.settled = f.bool()
	p.more = f.bool()
	for range 3 { // rcv-settle-mode, state, resume
		f.skipField()
	}
	p.aborted = f.bool()
	f.close()
}

// encode uses the delivery-id as the delivery-tag if there is none: tags must be unique among the
// unsettled deliveries of a link. A later transfer of a delivery has neither.
func (p *transfer) encode(b []byte) []byte {
	b = appendDescriptor(b, descTransfer)
	b = append(b, codeList8, 0)
	at := len(b)
	b = append(b, 11)
	b = appendUint(b, p.handle)
	if p.hasID {
		b = appendUint(b, p.deliveryID)
	} else {
		b = appendNull(b)
	}
	switch id := p.deliveryID; {
	case p.tag != nil:
		b = AppendBinary(b, p.tag)
	case p.hasID:
		b = append(b, codeBin8, 4, byte(id>>24), byte(id>>16), byte(id>>8), byte(id))
	default:
		b = appendNull(b)
	}
	b = appendUint(b, p.format)
	b = appendBool(b, p.settled)
	b = appendBool(b, p.more)
	b = append(b, codeNull, codeNull, codeFalse, codeFalse, codeFalse)
	b[at-1] = byte(len(b) - at)
	return b
}

// transferOverhead is the largest size of a transfer frame without its payload, in bytes.
const transferOverhead = 64

type disposition struct {
	receiver bool
	first    uint32
	last     uint32
	settled  bool
	state    *deliveryState // sent by the server
	outcome  *Outcome       // received from the client; nil if the state is not an outcome
}

// deliveryState is an outcome to send; with err it is rejected.
type deliveryState struct {
	kind OutcomeKind
	err  *Error
}

func (p *disposition) decode(d *decoder) {
	f := d.openFields()
	p.receiver = f.bool()
	p.first = f.uint32(0)
	p.last = f.uint32(p.first)
	p.settled = f.bool()
	if o, ok := outcomeOf(f.any()); ok {
		p.outcome = &o
	}
	f.close()
}

func (p *disposition) encode(b []byte) []byte {
	b, at := beginCompound(appendDescriptor(b, descDisposition), codeList32)
	b = appendBool(b, p.receiver)
	b = appendUint(b, p.first)
	b = appendUint(b, p.last)
	b = appendBool(b, p.settled)
	switch {
	case p.state == nil:
		b = appendNull(b)
	case p.state.err == nil:
		b = append(appendDescriptor(b, descAccepted+byte(p.state.kind)), codeList0)
	default:
		var in int
		b, in = beginCompound(appendDescriptor(b, descRejected), codeList32)
		b = endCompound(p.state.err.encode(b), in, 1)
	}
	b = appendBool(b, false)
	return endCompound(b, at, 6)
}

type detach struct {
	handle uint32
	closed bool
	err    *Error
}

func (p *detach) decode(d *decoder) {
	f := d.openFields()
	p.handle = f.uint32(0)
	p.closed = f.bool()
	p.err = f.error()
	f.close()
}

func (p *detach) encode(b []byte) []byte {
	b, at := beginCompound(appendDescriptor(b, descDetach), codeList32)
	b = appendUint(b, p.handle)
	b = appendBool(b, p.closed)
	b = p.err.encode(b)
	return endCompound(b, at, 3)
}

// endOrClose is an end or a close performative: both have an error as their only field.
type endOrClose struct {
	desc byte
	err  *Error
}

func (p *endOrClose) decode(d *decoder) {
	f := d.openFields()
	p.err = f.error()
	f.close()
}

func (p *endOrClose) encode(b []byte) []byte {
	b, at := beginCompound(appendDescriptor(b, p.desc), codeList32)
	return endCompound(p.err.encode(b), at, 1)
}

func (f *fields) error() *Error {
	_, in, ok := f.described(errorNames)
	if !ok {
		return nil
	}
	e := &Error{Condition: in.symbol(), Description: in.text()}
	in.close()
	return e
}

func (e *Error) encode(b []byte) []byte {
	if e == nil {
		return appendNull(b)
	}
	b, at := beginCompound(appendDescriptor(b, descError), codeList32)
	b = AppendSymbol(b, e.Condition)
	b = AppendString(b, e.Description)
	return endCompound(appendNull(b), at, 3)
}

// The SASL frames (section 5.3.3).

type saslMechanisms struct{ names []Symbol }

func (p *saslMechanisms) encode(b []byte) []byte {
	b, at := beginCompound(appendDescriptor(b, descMechanisms), codeList32)
	return endCompound(appendSymbols(b, p.names), at, 1)
}

func (p *saslMechanisms) decode(d *decoder) {
	f := d.openFields()
	p.names = f.symbols()
	f.close()
}

type saslInit struct {
	mechanism Symbol
	response  []byte // valid as long as the frame
}

func (p *saslInit) encode(b []byte) []byte {
	b, at := beginCompound(appendDescriptor(b, descInit), codeList32)
	b = AppendBinary(AppendSymbol(b, p.mechanism), p.response)
	return endCompound(appendNull(b), at, 3) // hostname: that of the open frame
}

func (p *saslInit) decode(d *decoder) {
	f := d.openFields()
	p.mechanism = f.symbol()
	p.response = f.binary()
	f.close()
}

type saslOutcome struct{ code byte }

func (p *saslOutcome) decode(d *decoder) {
	f := d.openFields()
	p.code = byte(min(f.uint32(saslAuth), 0xff))
	f.close()
}

func (p *saslOutcome) encode(b []byte) []byte {
	b, at := beginCompound(appendDescriptor(b, descOutcome), codeList32)
	return endCompound(append(b, codeUbyte, p.code, codeNull), at, 2)
}
