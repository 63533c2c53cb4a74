package azure

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
)

// Config says which storage account, and holds what has a default.
type Config struct {
	// Connection is the account's connection string; or else Account is its name
	// (contoso, or contoso.queue.core.usgovcloudapi.net's first part with Suffix),
	// with a Credential that has the roles of a contributor to queue data and to
	// table data.
	Connection string
	Account    string
	Credential azcore.TokenCredential
	// Suffix is that of the hosts of Azure's cloud. Default: core.windows.net.
	Suffix string
	// Table is the table's name. Default: Scaling.
	Table string
	// Lock is how long a received message is hidden from others, in whole
	// seconds. Default: 30 s.
	Lock time.Duration
	// Poll is the longest time between two looks into an empty queue; it begins
	// with a tenth of that and doubles. Default: 1 s.
	Poll time.Duration
	// Client is the SDK's options. Default: none.
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
	if strings.EqualFold(strings.TrimSpace(strings.TrimRight(c.Connection, "; ")), "UseDevelopmentStorage=true") {
		c.Connection = development
	}
	switch {
	case (c.Connection == "") == (c.Account == ""), (c.Account == "") != (c.Credential == nil):
		return c, errors.New("storage account: needs a connection string, or a name and a credential")
	case strings.ContainsAny(c.Account+c.Suffix, "/:@?#"):
		return c, errors.New("storage account: the name of an account is meant, without a URL around it")
	case c.Lock < time.Second || c.Lock%time.Second != 0:
		return c, fmt.Errorf("a lock of %v: must be whole seconds", c.Lock)
	}
	return c, nil
}

// development is the account that Azurite always has; its key is published.
// https://learn.microsoft.com/azure/storage/common/storage-use-azurite
const development = "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;" +
	"AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==;" +
	"QueueEndpoint=http://127.0.0.1:10001/devstoreaccount1;TableEndpoint=http://127.0.0.1:10002/devstoreaccount1"

// errConnection stands for the SDK's own, which may quote the key.
var errConnection = errors.New(`storage account: the connection string cannot be read: copy it from the portal, "Access keys": DefaultEndpointsProtocol=https;AccountName=…;AccountKey=…;EndpointSuffix=core.windows.net`)

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
