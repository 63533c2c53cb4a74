// Package cosmos scales the provisioned throughput of a Cosmos DB container, or of a
// database whose containers share it.
package cosmos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/internal/azclient"
	"github.com/sluice-go/sluice/autoscale/internal/azerror"
)

// Config names the container or database, and how to connect.
type Config struct {
	// Endpoint is the account's URL, with its Key.
	Endpoint string
	Key      string
	// Credential, instead of a key, is used for Azure Resource Manager, where the
	// account has a Subscription (its id), a ResourceGroup and a name, Account
	// (default: the first label of the Endpoint's host). The account itself refuses
	// tokens of Entra ID for reading and changing throughput, whatever their roles.
	// The identity needs the actions read and write of
	// Microsoft.DocumentDB/databaseAccounts/sqlDatabases/throughputSettings, or
	// …/sqlDatabases/containers/throughputSettings; the role Cosmos DB Operator has them.
	Credential                           azcore.TokenCredential
	Subscription, ResourceGroup, Account string
	// Database is the database, and Container the container in it. Without a
	// container, the throughput of the database is scaled.
	Database, Container string
	// Unit is how many RU/s an instance stands for: a multiple of 100, as Azure
	// requires. With autoscale throughput, the maximum RU/s is changed, which must be
	// a multiple of 1,000. Default: 1,000.
	Unit int
	// Accept is how long a change through Resource Manager is waited for. One that is
	// accepted and takes longer counts as done. Default: 1 min.
	Accept time.Duration
	// Options are passed to the SDK for the account, Manager to that for Resource
	// Manager. Default: none.
	Options *azcosmos.ClientOptions
	Manager *arm.ClientOptions
}

// Target scales the throughput of a container or database. It is safe for concurrent
// use.
type Target struct {
	cfg       Config
	what      string
	requested atomic.Int64 // units that Azure has accepted last; 0: none
	throughput
}

// throughput is the part of the SDK's clients that containers and databases share.
type throughput interface {
	ReadThroughput(context.Context, *azcosmos.ThroughputOptions) (azcosmos.ThroughputResponse, error)
	ReplaceThroughput(context.Context, azcosmos.ThroughputProperties, *azcosmos.ThroughputOptions) (azcosmos.ThroughputResponse, error)
}

var _ autoscale.Target = (*Target)(nil)

// New returns the throughput as a target. It does not connect before the target is
// used.
func New(cfg *Config) (*Target, error) {
	t := &Target{cfg: *cfg, what: "database " + cfg.Database}
	if cfg.Container != "" {
		t.what = "container " + cfg.Database + "/" + cfg.Container
	}
	t.cfg.Unit = cmp.Or(cfg.Unit, 1000)
	t.cfg.Accept = cmp.Or(cfg.Accept, time.Minute)
	if u, err := url.Parse(cfg.Endpoint); err == nil && cfg.Account == "" {
		t.cfg.Account, _, _ = strings.Cut(u.Hostname(), ".")
	}
	switch {
	case cfg.Database == "" || (cfg.Key == "") == (cfg.Credential == nil) || cfg.Key != "" && cfg.Endpoint == "":
		return nil, errors.New("throughput: give an account with either a key or a credential, and a database")
	case cfg.Credential != nil && (cfg.Subscription == "" || cfg.ResourceGroup == ""):
		return nil, errors.New("throughput: a credential changes the throughput only through Azure Resource Manager, because the account itself refuses that (403, sub-status 5300): give the subscription's id and the resource group too, or the account's key")
	case cfg.Credential != nil && t.cfg.Account == "":
		return nil, errors.New("throughput: give the account's name or its endpoint")
	case t.cfg.Unit < 100 || t.cfg.Unit%100 != 0:
		return nil, fmt.Errorf("throughput: a unit of %d RU/s: must be a multiple of 100", t.cfg.Unit)
	}
	var err error
	if t.throughput, err = t.cfg.connect(); err != nil {
		return nil, fmt.Errorf("throughput: %w", err)
	}
	return t, nil
}

func (cfg *Config) connect() (throughput, error) {
	if cfg.Credential != nil {
		return newManaged(cfg)
	}
	database, err := cfg.database()
	if err != nil || cfg.Container == "" {
		return database, err
	}
	return database.NewContainer(cfg.Container)
}

func (cfg *Config) database() (*azcosmos.DatabaseClient, error) {
	key, err := azcosmos.NewKeyCredential(cfg.Key)
	if err != nil {
		return nil, errors.New("the key is not base64") // without the key
	}
	var opts azcosmos.ClientOptions
	if cfg.Options != nil {
		opts = *cfg.Options
	}
	opts.ClientOptions = azclient.Bounded(opts.ClientOptions)
	client, err := azcosmos.NewClientWithKey(cfg.Endpoint, key, &opts)
	if err != nil {
		return nil, err
	}
	return client.NewDatabase(cfg.Database)
}

// Instances returns the provisioned throughput in units, rounded up; while a change
// that Scale has requested is in progress, what it will be then.
func (t *Target) Instances(ctx context.Context) (int, error) {
	r, err := t.ReadThroughput(ctx, nil)
	if err != nil {
		return 0, t.fail(err)
	}
	ru, _, err := provisioned(r)
	if err != nil {
		return 0, t.fail(err)
	}
	if n := int(t.requested.Load()); n > 0 && r.IsReplacePending {
		return n, nil
	}
	t.requested.Store(0)
	return (ru + t.cfg.Unit - 1) / t.cfg.Unit, nil
}

// Scale changes the throughput to to units. It returns when Azure has accepted that;
// if more physical partitions are needed, the change itself can take hours.
func (t *Target) Scale(ctx context.Context, to int) error {
	if to < 1 || to > math.MaxInt32/t.cfg.Unit {
		return t.fail(fmt.Errorf("%d units of %d RU/s: must be at least 1 unit, and at most 2,147,483,647 RU/s", to, t.cfg.Unit))
	}
	r, err := t.ReadThroughput(ctx, nil)
	if err != nil {
		return t.fail(err)
	}
	_, autoscaled, err := provisioned(r)
	if err != nil {
		return t.fail(err)
	}
	ru := int32(to * t.cfg.Unit)
	switch {
	case r.MinThroughput != nil && ru < *r.MinThroughput:
		return t.fail(fmt.Errorf("%d RU/s: the minimum is %d RU/s, by the stored data and the highest throughput so far", ru, *r.MinThroughput))
	case autoscaled && ru%1000 != 0:
		return t.fail(fmt.Errorf("%d RU/s: the maximum of autoscale throughput must be a multiple of 1,000", ru))
	}
	properties := azcosmos.NewManualThroughputProperties(ru)
	if autoscaled {
		properties = azcosmos.NewAutoscaleThroughputProperties(ru)
	}
	if _, err := t.ReplaceThroughput(ctx, properties, nil); err != nil {
		return t.fail(err)
	}
	t.requested.Store(int64(to))
	return nil
}

// provisioned returns the throughput in RU/s, and whether it is the maximum of
// autoscale throughput.
func provisioned(r azcosmos.ThroughputResponse) (ru int, autoscaled bool, err error) {
	if r.ThroughputProperties != nil {
		if ru, ok := r.ThroughputProperties.AutoscaleMaxThroughput(); ok {
			return int(ru), true, nil
		}
		if ru, ok := r.ThroughputProperties.ManualThroughput(); ok {
			return int(ru), false, nil
		}
	}
	return 0, false, errors.New("it has no throughput of its own: it shares the database's, or the account is serverless")
}

func (t *Target) fail(err error) error {
	return fmt.Errorf("throughput of %s: %w", t.what, azerror.Shorten(err))
}
