// Package cosmos scales the provisioned throughput of a Cosmos DB container, or of a
// database whose containers share it.
package cosmos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/internal/azerror"
)

// Config names the container or database, and how to connect.
type Config struct {
	// Endpoint is the account's URL, with its Key or a Credential. A credential needs
	// more than data roles to read and change throughput.
	Endpoint   string
	Key        string
	Credential azcore.TokenCredential
	// Database is the database, and Container the container in it. Without a
	// container, the throughput of the database is scaled.
	Database, Container string
	// Unit is how many RU/s an instance stands for: a multiple of 100, as Azure
	// requires. With autoscale throughput, the maximum RU/s is changed, which must be
	// a multiple of 1,000. Default: 1,000.
	Unit int
	// Options are passed to the SDK. Default: none.
	Options *azcosmos.ClientOptions
}

// Target scales the throughput of a container or database. It is safe for concurrent
// use.
type Target struct {
	cfg  Config
	what string
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
	t.cfg.Unit = cmp.Or(cfg.Unit, 1000)
	switch {
	case cfg.Endpoint == "" || cfg.Database == "" || (cfg.Key == "") == (cfg.Credential == nil):
		return nil, errors.New("throughput: give an endpoint with either a key or a credential, and a database")
	case t.cfg.Unit < 100 || t.cfg.Unit%100 != 0:
		return nil, fmt.Errorf("throughput: a unit of %d RU/s: must be a multiple of 100", t.cfg.Unit)
	}
	database, err := cfg.database()
	if err != nil {
		return nil, fmt.Errorf("throughput: %w", err)
	}
	t.throughput = database
	if cfg.Container != "" {
		t.what = "container " + cfg.Database + "/" + cfg.Container
		if t.throughput, err = database.NewContainer(cfg.Container); err != nil {
			return nil, fmt.Errorf("throughput: %w", err)
		}
	}
	return t, nil
}

func (cfg *Config) database() (*azcosmos.DatabaseClient, error) {
	if cfg.Credential != nil {
		client, err := azcosmos.NewClient(cfg.Endpoint, cfg.Credential, cfg.Options)
		if err != nil {
			return nil, err
		}
		return client.NewDatabase(cfg.Database)
	}
	key, err := azcosmos.NewKeyCredential(cfg.Key)
	if err != nil {
		return nil, errors.New("the key is not base64") // without the key
	}
	client, err := azcosmos.NewClientWithKey(cfg.Endpoint, key, cfg.Options)
	if err != nil {
		return nil, err
	}
	return client.NewDatabase(cfg.Database)
}

// Instances returns the provisioned throughput in units, rounded up.
func (t *Target) Instances(ctx context.Context) (int, error) {
	r, err := t.ReadThroughput(ctx, nil)
	if err != nil {
		return 0, t.fail(err)
	}
	ru, _, err := provisioned(r)
	if err != nil {
		return 0, t.fail(err)
	}
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
