package emulator

import "time"

// CosmosAsAzure makes a [Cosmos] behave as an account on Azure does: see [AsAzure].
type CosmosAsAzure struct {
	// DataPlaneRights refuses requests with an access token that create, change or delete
	// databases and containers, and all about throughput, with 403 and substatus 5300. On
	// Azure these are for the management API (azure-cosmos-dotnet-v3#4653, efcore#32197).
	DataPlaneRights bool
	// AnswerSize is the maximum size of the answer to a batch in bytes. Operations whose
	// results don't fit aren't carried out: 413 and substatus 3402. On Azure 4 MB
	// (azure-cosmos-dotnet-v3#2130, azure-sdk-for-java#21071).
	AnswerSize int
	// RequestSize is the maximum size of a write's or a batch's body in bytes; larger ones
	// are refused with 413. On Azure 2 MB (Cosmos DB quotas: "maximum request size").
	// Without it, a batch can have 256 KB more.
	RequestSize int
	// StopOnError ends a bulk batch at its first failed operation, unless the header
	// x-ms-cosmos-batch-continue-on-error asks to continue (.NET SDK:
	// HttpConstants.HttpHeaders.ShouldBatchContinueOnError). Later ones have status 424.
	StopOnError bool
	// SlowThroughput is after how long a throughput is effective that the physical
	// partitions can't serve, which is 10,000 RU/s each; partitions are split then. Until
	// then the offer says that the change is pending, and another one is refused with 400
	// and substatus 3205. On Azure it takes up to hours (Cosmos DB documentation: "Best
	// practices for scaling provisioned throughput").
	SlowThroughput time.Duration
	// TwoRegions gives the account a second region, on a port of its own. One takes writes;
	// the other refuses them with 403 and substatus 3, until [Cosmos.Failover] (.NET SDK:
	// ClientRetryPolicy.cs, SubStatusCodes.WriteForbidden).
	TwoRegions bool
}

func cosmosSwitches() []asAzureSwitch {
	return []asAzureSwitch{
		onOff("cosmos-data-plane-rights", func(a *AsAzure) *bool { return &a.Cosmos.DataPlaneRights }),
		count("cosmos-answer-size", "4194304", func(a *AsAzure) *int { return &a.Cosmos.AnswerSize }),
		count("cosmos-request-size", "2097152", func(a *AsAzure) *int { return &a.Cosmos.RequestSize }),
		onOff("cosmos-stop-on-error", func(a *AsAzure) *bool { return &a.Cosmos.StopOnError }),
		duration("cosmos-slow-throughput", "1m", func(a *AsAzure) *time.Duration { return &a.Cosmos.SlowThroughput }),
		onlySpecial(onOff("cosmos-two-regions", func(a *AsAzure) *bool { return &a.Cosmos.TwoRegions })),
	}
}
