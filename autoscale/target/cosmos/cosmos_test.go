package cosmos_test

import (
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/sluice-go/sluice/autoscale/target/cosmos"
	"github.com/sluice-go/sluice/emulator"
)

func account(t *testing.T, ru int) *emulator.Cosmos {
	t.Helper()
	a, err := emulator.StartCosmos([]emulator.CosmosContainer{{Database: "db", Name: "docs", KeyPaths: []string{"/key"}}}, &emulator.CosmosConfig{Throughput: ru})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

func target(t *testing.T, a *emulator.Cosmos, container string, unit int) *cosmos.Target {
	t.Helper()
	target, err := cosmos.New(&cosmos.Config{Endpoint: a.Endpoint(), Key: a.Key(), Database: "db", Container: container, Unit: unit,
		Options: &azcosmos.ClientOptions{ClientOptions: policy.ClientOptions{Retry: policy.RetryOptions{MaxRetries: -1}}}})
	if err != nil {
		t.Fatal(err)
	}
	return target
}

func TestScale(t *testing.T) {
	a := account(t, 1050)
	docs := target(t, a, "docs", 0)
	if n, err := docs.Instances(t.Context()); err != nil || n != 2 {
		t.Errorf("1,050 RU/s are %d units of 1,000, %v; want 2", n, err)
	}
	for _, want := range []int{1, 7} {
		if err := docs.Scale(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		if n, err := docs.Instances(t.Context()); err != nil || n != want {
			t.Errorf("%d units, %v; want %d", n, err, want)
		}
	}
	// The account itself says so.
	if n, err := target(t, a, "docs", 100).Instances(t.Context()); err != nil || n != 70 {
		t.Errorf("%d units of 100, %v; want 70", n, err)
	}
}

func TestFailures(t *testing.T) {
	a := account(t, 1000)
	expect := func(what, want string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
	}
	expect("below the least", "300 RU/s: the minimum is 400 RU/s", target(t, a, "docs", 100).Scale(t.Context(), 3))
	expect("none", "0 units", target(t, a, "docs", 0).Scale(t.Context(), 0))
	expect("more than Azure has", "throughput of container db/docs: HTTP 400 (Bad Request", target(t, a, "docs", 0).Scale(t.Context(), 2000))
	_, err := target(t, a, "none", 0).Instances(t.Context())
	expect("no such container", "throughput of container db/none: HTTP 404", err)
	if n, err := target(t, a, "docs", 0).Instances(t.Context()); err != nil || n != 1 {
		t.Errorf("after all that: %d, %v", n, err)
	}
	for _, cfg := range []cosmos.Config{
		{},
		{Endpoint: a.Endpoint(), Database: "db"},
		{Endpoint: a.Endpoint(), Key: a.Key(), Database: "db", Unit: 150},
		{Endpoint: a.Endpoint(), Key: "hunter2!", Database: "db"},
	} {
		if _, err := cosmos.New(&cfg); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}
