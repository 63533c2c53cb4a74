package emulator

// ServiceBusAsAzure makes a [ServiceBus] behave as a namespace on Azure does: see [AsAzure].
type ServiceBusAsAzure struct{}

func serviceBusSwitches() []asAzureSwitch { return nil }
