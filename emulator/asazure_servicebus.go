package emulator

import "time"

// ServiceBusAsAzure makes a [ServiceBus] behave as a namespace on Azure does: see [AsAzure].
// The sizes of messages and batches depend on [ServiceBusConfig.Premium], and hold always.
type ServiceBusAsAzure struct {
	// Connections is how many AMQP connections the namespace has at a time. Azure allows
	// 5,000 (Service Bus quotas: "concurrent connections on a namespace").
	Connections int
	// Receivers is how many links receive from a queue, or from all subscriptions of a
	// topic, at a time. Azure allows 5,000 (Service Bus quotas: "concurrent receive
	// requests").
	Receivers int
	// IdleLink is after how long an idle link is detached: a sender that sends nothing, a
	// receiver that gives no credit. On Azure 10 minutes (AMQP errors in the Service Bus
	// documentation: amqp:link:detach-forced).
	IdleLink time.Duration
	// IdleConnection is after how long a connection without links is closed. On Azure 5
	// minutes (AMQP errors in the Service Bus documentation: amqp:connection:forced).
	IdleConnection time.Duration
	// MessageID refuses messages whose id has more than 128 characters (Service Bus quotas:
	// "maximum size of a message ID").
	MessageID bool
	// Properties refuses messages with a property of more than 32 KiB, or with more than 64
	// KiB of properties in total (Service Bus quotas: "message property size").
	Properties bool
	// EntitySizes refuses maximum sizes of queues and topics that Azure doesn't offer: 1 to
	// 5 GiB, and on the premium tier up to 80 GiB (Service Bus quotas: "queue or topic
	// size").
	EntitySizes bool
	// ShortestLock is the shortest lock duration of a queue or subscription. On Azure 5
	// seconds.
	ShortestLock time.Duration
	// LargeMessages is the size in KiB of the largest message on the premium tier: up to
	// 102400, as an entity on Azure can be configured. Batches stay limited to 1 MiB, as the
	// link property com.microsoft:max-message-batch-size states (azure-sdk-for-net#57941).
	LargeMessages int
	// RandomBusy is the share of operations that are refused as server-busy, chosen by the
	// seed.
	RandomBusy float64
}

func serviceBusSwitches() []asAzureSwitch {
	return []asAzureSwitch{
		count("servicebus-connections", "5000", func(a *AsAzure) *int { return &a.ServiceBus.Connections }),
		count("servicebus-receivers", "5000", func(a *AsAzure) *int { return &a.ServiceBus.Receivers }),
		duration("servicebus-idle-link", "10m", func(a *AsAzure) *time.Duration { return &a.ServiceBus.IdleLink }),
		duration("servicebus-idle-connection", "5m", func(a *AsAzure) *time.Duration { return &a.ServiceBus.IdleConnection }),
		onOff("servicebus-message-id", func(a *AsAzure) *bool { return &a.ServiceBus.MessageID }),
		onOff("servicebus-properties", func(a *AsAzure) *bool { return &a.ServiceBus.Properties }),
		onOff("servicebus-entity-sizes", func(a *AsAzure) *bool { return &a.ServiceBus.EntitySizes }),
		duration("servicebus-shortest-lock", "5s", func(a *AsAzure) *time.Duration { return &a.ServiceBus.ShortestLock }),
		onlySpecial(count("servicebus-large-messages", "102400", func(a *AsAzure) *int { return &a.ServiceBus.LargeMessages })),
		share("servicebus-random-busy", "0.01", func(a *AsAzure) *float64 { return &a.ServiceBus.RandomBusy }),
	}
}
