// Package cosmos scales the throughput of a Cosmos DB container, or of a
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

// Config says what is scaled, and how it is reached.
type Config struct {
	// Endpoint is the account's URL, with its Key or a Credential. Reading and
	// changing throughput with a credential takes more than the right to data.
	Endpoint   string
	Key        string
	Credential azcore.TokenCredential
	// Database is the database, and Container the container in it. Without one
	// the throughput is that of the database.
	Database, Container string
	// Unit is how many RU/s an instance stands for. Azure wants multiples of
	// 100, and of 1,000 where it scales by itself up to a maximum, which is what
	// is changed then. Default: 1,000.
	Unit int
	// Options are the SDK's. Default: none.
	Options *azcosmos.ClientOptions
}

// Target is the throughput of a container or database. It is safe for
// concurrent use.
type Target struct {
	cfg  Config
	what string
	throughput
}

// throughput is what containers and databases have in common.
type throughput interface {
	ReadThroughput(context.Context, *azcosmos.ThroughputOptions) (azcosmos.ThroughputResponse, error)
	ReplaceThroughput(context.Context, azcosmos.ThroughputProperties, *azcosmos.ThroughputOptions) (azcosmos.ThroughputResponse, error)
}

var _ autoscale.Target = (*Target)(nil)

// New returns the throughput as a target. The account is first asked when the
// target is used.
func New(cfg *Config) (*Target, error) {
	t := &Target{cfg: *cfg, what: "database " + cfg.Database}
	t.cfg.Unit = cmp.Or(cfg.Unit, 1000)
	switch {
	case cfg.Endpoint == "" || cfg.Database == "" || (cfg.Key == "") == (cfg.Credential == nil):
		return nil, errors.New("throughput: needs an endpoint with a key or a credential, and a database")
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
		return nil, errors.New("the key is not base64") // and is not to be quoted
	}
	client, err := azcosmos.NewClientWithKey(cfg.Endpoint, key, cfg.Options)
	if err != nil {
		return nil, err
	}
	return client.NewDatabase(cfg.Database)
}

// Instances is how many units there are, a part of one counted as a whole.
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

// Scale changes the throughput to so many units. It returns when Azure has
// accepted that; what needs more physical partitions may take it hours.
func (t *Target) Scale(ctx context.Context, to int) error {
	if to < 1 || to > math.MaxInt32/t.cfg.Unit {
		return t.fail(fmt.Errorf("%d units of %d RU/s: there must be some, and not so many", to, t.cfg.Unit))
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
		return t.fail(fmt.Errorf("%d RU/s: it holds so much, or had so many, that %d RU/s is the least", ru, *r.MinThroughput))
	case autoscaled && ru%1000 != 0:
		return t.fail(fmt.Errorf("%d RU/s: a maximum up to which Azure scales by itself is a multiple of 1,000", ru))
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

// provisioned reads a throughput, and tells whether it is a maximum up to
// which Azure scales by itself.
func provisioned(r azcosmos.ThroughputResponse) (ru int, autoscaled bool, err error) {
	if r.ThroughputProperties != nil {
		if ru, ok := r.ThroughputProperties.AutoscaleMaxThroughput(); ok {
			return int(ru), true, nil
		}
		if ru, ok := r.ThroughputProperties.ManualThroughput(); ok {
			return int(ru), false, nil
		}
	}
	return 0, false, errors.New("it has no throughput of its own: it may be shared, or the account serverless")
}

func (t *Target) fail(err error) error {
	return fmt.Errorf("throughput of %s: %w", t.what, azerror.Shorten(err))
}
