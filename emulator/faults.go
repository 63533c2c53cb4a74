package emulator

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/faults"
	"github.com/sluice-go/sluice/internal/amqp"
)

// Fault is a failure that a [Server] or [ServiceBus] injects.
type Fault struct {
	// Kind is the kind of failure.
	Kind FaultKind
	// On is the operation that fails.
	On Operation
	// Hub and Partition restrict the fault to an event hub, and to one of its
	// partitions; in a [ServiceBus], Hub is the path of a queue, topic or subscription.
	// Default: all. Requests for the properties of a hub or partition match no
	// Partition.
	Hub, Partition string
	// Times is how many operations fail. Default: all, until the fault is removed.
	Times int
	// Delay is how long the operation is delayed before it fails, up to one hour. Later
	// operations on the same link wait for it.
	Delay time.Duration
}

// FaultKind is a kind of [Fault].
type FaultKind string

const (
	// FaultDelay delays an operation, which then succeeds.
	FaultDelay FaultKind = "delay"
	// FaultServerBusy throttles, as Azure does with clients above their quota: a
	// message is rejected and not stored, a receiver is detached, a link is refused, a
	// request for properties is answered with status 503.
	FaultServerBusy FaultKind = "server-busy"
	// FaultDetach detaches the link, as Azure does now and then. The message of a send
	// is not stored.
	FaultDetach FaultKind = "detach"
	// FaultDrop closes the connection, as a failing network would. The message of a
	// send is not stored.
	FaultDrop FaultKind = "drop"
	// FaultLoseAnswer stores the message and closes the connection before the
	// acknowledgement. A client that retries creates a duplicate. It is for [OnSend]
	// only.
	FaultLoseAnswer FaultKind = "lose-answer"
)

// Operation is an operation that a [Fault] hits.
type Operation string

const (
	// OnAttach is the opening of a link for sending or receiving. It can't be delayed.
	OnAttach Operation = "attach"
	// OnSend is a message or batch from a client.
	OnSend Operation = "send"
	// OnReceive is a number of events or messages that are about to be sent to a
	// receiver.
	OnReceive Operation = "receive"
	// OnManage is a request for the properties of a hub or partition, or a management
	// request of a Service Bus entity.
	OnManage Operation = "manage"
)

func (f *Fault) validate() error {
	switch f.Kind {
	case FaultDelay:
		if f.Delay == 0 {
			return fmt.Errorf("a fault of kind %s needs a delay", f.Kind)
		}
	case FaultServerBusy, FaultDetach, FaultDrop:
	case FaultLoseAnswer:
		if f.On != OnSend {
			return fmt.Errorf("a fault of kind %s is for operation %s only", f.Kind, OnSend)
		}
	default:
		return fmt.Errorf("unknown kind of fault %.40q: must be %s, %s, %s, %s or %s", f.Kind, FaultDelay, FaultServerBusy, FaultDetach, FaultDrop, FaultLoseAnswer)
	}
	switch f.On {
	case OnSend, OnReceive, OnManage:
	case OnAttach:
		if f.Delay != 0 {
			return fmt.Errorf("a fault on %s can't be delayed", OnAttach)
		}
	default:
		return fmt.Errorf("unknown operation %.40q: must be %s, %s, %s or %s", f.On, OnAttach, OnSend, OnReceive, OnManage)
	}
	switch {
	case f.Times < 0 || f.Delay < 0 || f.Delay > faults.MaxDelay:
		return fmt.Errorf("times and delay of a fault must not be negative, and the delay at most %s", faults.MaxDelay)
	case f.Partition != "" && f.Hub == "":
		return fmt.Errorf("a fault of partition %.40q needs a hub, too", f.Partition)
	}
	return nil
}

func (f *Fault) matches(on Operation, hub, partition string) bool {
	return f.On == on && (f.Hub == "" || strings.EqualFold(f.Hub, hub)) && (f.Partition == "" || f.Partition == partition)
}

// Faults are the faults of a [Server] or [ServiceBus]. It is safe for concurrent use.
type Faults struct{ set faults.Set[Fault] }

// FaultState is a fault that was added.
type FaultState struct {
	ID    int
	Fault Fault
	Hits  int // operations that it has hit
}

// Add adds a fault, which is effective at once, and returns its id. If several faults
// match an operation, the oldest one hits it. It returns an error if the fault is
// invalid or there are 1,000 faults already.
func (f *Faults) Add(fault Fault) (id int, err error) {
	if err := fault.validate(); err != nil {
		return 0, err
	}
	return faults.Add(&f.set, fault, fault.Times, 0)
}

// List returns all faults, oldest first, including those that no longer hit anything.
func (f *Faults) List() []FaultState {
	var list []FaultState
	for _, s := range f.set.List() {
		list = append(list, FaultState(s))
	}
	return list
}

// Remove removes a fault, and reports whether there was one with the id.
func (f *Faults) Remove(id int) bool { return f.set.Remove(id) }

// Clear removes all faults.
func (f *Faults) Clear() { f.set.Clear() }

// inject injects the fault that matches the operation on link l, if there is one. The
// kind, "" without a fault, says what the caller does: with err it rejects the
// operation, or ends the link.
func (f *Faults) inject(ctx context.Context, l *amqp.Link, on Operation, hub, partition string) (kind FaultKind, err error) {
	fault, ok := faults.Next(&f.set, func(fault *Fault) bool { return fault.matches(on, hub, partition) })
	if !ok {
		return "", nil
	}
	if fault.Delay > 0 {
		wait := time.NewTimer(fault.Delay)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-ctx.Done():
			return fault.Kind, ctx.Err()
		}
	}
	switch fault.Kind {
	case FaultServerBusy:
		return fault.Kind, errServerBusy
	case FaultDetach:
		return fault.Kind, forcedDetach(l)
	case FaultDrop:
		l.DropConnection()
		return fault.Kind, errDropped
	}
	return fault.Kind, nil
}

var errServerBusy = amqp.Errorf(amqp.CondServerBusy, "The request was terminated because the entity is being throttled. Error code : 50002. "+
	"Please wait 4 seconds and try again.")

// errDropped ends a link whose connection was dropped. No client sees it.
var errDropped = amqp.Errorf(amqp.CondConnectionForced, "the connection was cut")

func forcedDetach(l *amqp.Link) error {
	return amqp.Errorf(amqp.CondDetachForced, "The link '%.100s' is force detached by the broker.", l.Name())
}
