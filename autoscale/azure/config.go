package azure

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/sluice-go/sluice/autoscale/internal/azclient"
)

// Config names the storage account, and holds the options.
type Config struct {
	// Connection is the account's connection string, or UseDevelopmentStorage=true.
	// Or Account is its name (contoso of contoso.queue.core.windows.net), with a
	// Credential that has the roles Storage Queue Data Contributor and Storage Table
	// Data Contributor.
	Connection string
	Account    string
	Credential azcore.TokenCredential
	// Suffix is the host suffix of the Azure cloud, such as core.usgovcloudapi.net.
	// Default: core.windows.net.
	Suffix string
	// Table is the table's name. Default: Scaling.
	Table string
	// Lock is how long a received message is hidden from other receivers, in whole
	// seconds. Default: 30 s.
	Lock time.Duration
	// Poll is the longest wait between two requests to an empty queue. The first wait
	// is a tenth of it, and it doubles. Default: 1 s.
	Poll time.Duration
	// Log receives rows of the table that are not understood, each once. Default: nothing is
	// logged.
	Log *slog.Logger
	// Client is passed to the SDK. Each attempt of a request lasts at most 30 s, unless
	// Retry.TryTimeout is set. Default: none.
	Client policy.ClientOptions
}

func (cfg *Config) withDefaults() (Config, error) {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	c.Suffix = cmp.Or(c.Suffix, "core.windows.net")
	c.Table = cmp.Or(c.Table, "Scaling")
	c.Lock = cmp.Or(c.Lock, 30*time.Second)
	c.Poll = cmp.Or(c.Poll, time.Second)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Client = azclient.Bounded(c.Client)
	if strings.EqualFold(strings.TrimSpace(strings.TrimRight(c.Connection, "; ")), "UseDevelopmentStorage=true") {
		c.Connection = development
	}
	switch {
	case (c.Connection == "") == (c.Account == ""), (c.Account == "") != (c.Credential == nil):
		return c, errors.New("storage account: give either a connection string, or a name and a credential")
	case strings.ContainsAny(c.Account+c.Suffix, "/:@?#"):
		return c, errors.New("storage account: give the name of the account, not a URL")
	case c.Lock < time.Second || c.Lock%time.Second != 0:
		return c, fmt.Errorf("a lock of %v: must be whole seconds", c.Lock)
	}
	return c, nil
}

// development is the connection string of Azurite's default account; its key is
// public.
// https://learn.microsoft.com/azure/storage/common/storage-use-azurite
const development = "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;" +
	"AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==;" +
	"QueueEndpoint=http://127.0.0.1:10001/devstoreaccount1;TableEndpoint=http://127.0.0.1:10002/devstoreaccount1"

// errConnection replaces the SDK's error, which may quote the key.
var errConnection = errors.New(`storage account: the connection string is not valid: copy it from the portal, "Access keys": DefaultEndpointsProtocol=https;AccountName=…;AccountKey=…;EndpointSuffix=core.windows.net`)

func (cfg *Config) queues() (*azqueue.ServiceClient, error) {
	opts := &azqueue.ClientOptions{ClientOptions: cfg.Client}
	if cfg.Connection == "" {
		return azqueue.NewServiceClient("https://"+cfg.Account+".queue."+cfg.Suffix, cfg.Credential, opts)
	}
	c, err := azqueue.NewServiceClientFromConnectionString(cfg.Connection, opts)
	if err != nil {
		return nil, errConnection
	}
	return c, nil
}

func (cfg *Config) tables() (*aztables.ServiceClient, error) {
	opts := &aztables.ClientOptions{ClientOptions: cfg.Client}
	if cfg.Connection == "" {
		return aztables.NewServiceClient("https://"+cfg.Account+".table."+cfg.Suffix, cfg.Credential, opts)
	}
	c, err := aztables.NewServiceClientFromConnectionString(cfg.Connection, opts)
	if err != nil {
		return nil, errConnection
	}
	return c, nil
}
