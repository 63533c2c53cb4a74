package emulator

// CosmosAsAzure makes a [Cosmos] behave as an account on Azure does: see [AsAzure].
type CosmosAsAzure struct{}

func cosmosSwitches() []asAzureSwitch { return nil }
