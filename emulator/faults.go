package emulator

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/amqp"
	"github.com/sluice-go/sluice/emulator/internal/faults"
)

// Fault is something that goes wrong on demand.
type Fault struct {
	// Kind is what goes wrong.
	Kind FaultKind
	// On is the operation that it befalls.
	On Operation
	// Hub and Partition restrict it to an event hub, and to one of its partitions; in a [ServiceBus], Hub is the path of a queue, topic or
	// subscription. Default: all. Requests to $management are for no partition.
	Hub, Partition string
	// Times is how many operations it befalls. Default: each one until it is removed.
	Times int
	// Delay is how long the operation is held up before that, and with it all that follows on its link.
	Delay time.Duration
}

// FaultKind is a kind of [Fault].
type FaultKind string

const (
	// FaultDelay only holds up.
	FaultDelay FaultKind = "delay"
	// FaultServerBusy refuses, as Azure does to clients that use more than their share: a message is rejected and not stored, a receiver
	// detached, a link refused, a request to $management answered with status 503.
	FaultServerBusy FaultKind = "server-busy"
	// FaultDetach detaches the link, as Azure does now and then. A message that arrives is not stored.
	FaultDetach FaultKind = "detach"
	// FaultDrop cuts the connection, as a failing network would. A message that arrives is not stored.
	FaultDrop FaultKind = "drop"
	// FaultLoseAnswer stores a message, and cuts the connection before it is acknowledged. A client that sends it again has it stored twice.
	FaultLoseAnswer FaultKind = "lose-answer"
)

// Operation is what a [Fault] befalls.
type Operation string

const (
	// OnAttach is a link that a client opens to send or to receive. It can't be delayed.
	OnAttach Operation = "attach"
	// OnSend is a message or batch that arrives.
	OnSend Operation = "send"
	// OnReceive is a number of events that are about to go to a receiver.
	OnReceive Operation = "receive"
	// OnManage is a request for the properties of a hub or partition.
	OnManage Operation = "manage"
)

func (f *Fault) validate() error {
	switch f.Kind {
	case FaultDelay:
		if f.Delay == 0 {
			return fmt.Errorf("a fault of kind %s needs the length of the delay", f.Kind)
		}
	case FaultServerBusy, FaultDetach, FaultDrop:
	case FaultLoseAnswer:
		if f.On != OnSend {
			return fmt.Errorf("a fault of kind %s is on %s only", f.Kind, OnSend)
		}
	default:
		return fmt.Errorf("unknown kind of fault %.40q: choose %s, %s, %s, %s or %s", f.Kind, FaultDelay, FaultServerBusy, FaultDetach, FaultDrop, FaultLoseAnswer)
	}
	switch f.On {
	case OnSend, OnReceive, OnManage:
	case OnAttach:
		if f.Delay != 0 {
			return fmt.Errorf("a fault on %s can't be delayed", OnAttach)
		}
	default:
		return fmt.Errorf("unknown operation %.40q: choose %s, %s, %s or %s", f.On, OnAttach, OnSend, OnReceive, OnManage)
	}
	switch {
	case f.Times < 0 || f.Delay < 0 || f.Delay > faults.MaxDelay:
		return fmt.Errorf("a fault happens a positive number of times, or 0 for each time, and delays up to %s", faults.MaxDelay)
	case f.Partition != "" && f.Hub == "":
		return fmt.Errorf("a fault of partition %.40q needs the partition's hub", f.Partition)
	}
	return nil
}

func (f *Fault) befalls(on Operation, hub, partition string) bool {
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

// Add has a fault happen from now on, and returns its id. Of several faults that fit an operation, the oldest happens.
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

// strike has a fault happen, if one befalls the operation on link l. The error is what the operation is to be refused with, or the link to end
// with; which of them, and what else the caller must do, the kind tells: "" if nothing happened.
func (f *Faults) strike(ctx context.Context, l *amqp.Link, on Operation, hub, partition string) (kind FaultKind, err error) {
	fault, ok := faults.Next(&f.set, func(fault *Fault) bool { return fault.befalls(on, hub, partition) })
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
		return fault.Kind, errCut
	}
	return fault.Kind, nil
}

var errServerBusy = amqp.Errorf(amqp.CondServerBusy, "The request was terminated because the entity is being throttled. Error code : 50002. "+
	"Please wait 4 seconds and try again.")

// errCut is for nobody's eyes: the client is gone.
var errCut = amqp.Errorf(amqp.CondConnectionForced, "the connection was cut")

func forcedDetach(l *amqp.Link) error {
	return amqp.Errorf(amqp.CondDetachForced, "The link '%.100s' is force detached by the broker.", l.Name())
}
