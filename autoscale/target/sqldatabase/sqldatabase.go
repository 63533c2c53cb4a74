// Package sqldatabase scales an Azure SQL database: up and down a list of service
// objectives.
package sqldatabase

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/internal/azclient"
	"github.com/sluice-go/sluice/autoscale/internal/azerror"
)

// MaxObjectives bounds a list of service objectives.
const MaxObjectives = 100

// Config names the database, and how to connect. All fields but Poll and Options are
// required.
type Config struct {
	Subscription  string // its id
	ResourceGroup string
	Server        string // its name, without .database.windows.net
	Database      string
	// Objectives are the service objectives that the database may have, the smallest
	// first, such as S0, S1, S2 or GP_Gen5_2, GP_Gen5_4, GP_Gen5_8 (2, 4 and 8 vCores).
	// One instance is the first of them, two instances are the second, and so on.
	Objectives []string
	// Credential is used for Azure Resource Manager. It needs the right to read and
	// write the database, as the role SQL DB Contributor has.
	Credential azcore.TokenCredential
	// Poll is the time between two checks whether a change is complete, and between two
	// attempts while Azure carries out another change. Default: 5 s.
	Poll time.Duration
	// Options are passed to the SDK. Default: none.
	Options *arm.ClientOptions
}

// Target scales a database. It is safe for concurrent use.
type Target struct {
	cfg      Config
	database *azclient.Resource[database]
}

var _ autoscale.Target = (*Target)(nil)

// New returns the database as a target. It does not connect before the target is used.
func New(cfg *Config) (*Target, error) {
	t := &Target{cfg: *cfg}
	t.cfg.Poll = cmp.Or(cfg.Poll, 5*time.Second)
	// https://learn.microsoft.com/rest/api/sql/databases
	path, err := azclient.Path("Microsoft.Sql/servers/databases", cfg.Subscription, cfg.ResourceGroup, cfg.Server, cfg.Database)
	if err == nil {
		err = CheckObjectives(cfg.Objectives)
	}
	if err == nil {
		t.database, err = azclient.NewResource[database](cfg.Credential, cfg.Options, path, "2021-11-01")
	}
	if err != nil {
		return nil, fmt.Errorf("azure sql: %w", err)
	}
	return t, nil
}

var objective = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{0,63}$`)

// CheckObjectives returns an error unless the list is one of service objectives.
func CheckObjectives(list []string) error {
	if len(list) < 2 || len(list) > MaxObjectives {
		return fmt.Errorf("%d service objectives: write 2 to %d, the smallest first, such as S0, S1, S2", len(list), MaxObjectives)
	}
	for i, name := range list {
		switch {
		case !objective.MatchString(name):
			return fmt.Errorf("%.80q is not a service objective: write one such as S1 or GP_Gen5_4", name)
		case strings.EqualFold(name, "ElasticPool"):
			return errors.New("ElasticPool: a database in an elastic pool has the pool's resources, so it cannot be scaled")
		case find(list[:i], name) >= 0:
			return fmt.Errorf("%s is in the list of service objectives twice", name)
		}
	}
	return nil
}

func find(list []string, name string) int {
	return slices.IndexFunc(list, func(s string) bool { return strings.EqualFold(s, name) })
}

// Instances returns the place of the database's service objective in the list, from 1 on;
// while a change is in progress, that of the objective that it will have. An objective
// that is not in the list is an error.
func (t *Target) Instances(ctx context.Context) (int, error) {
	n, err := t.instances(ctx)
	if err != nil {
		return 0, t.fail(err)
	}
	return n, nil
}

func (t *Target) instances(ctx context.Context) (int, error) {
	d, err := t.database.Get(ctx)
	if err != nil {
		return 0, err
	}
	now := cmp.Or(d.Properties.Requested, d.Properties.Current)
	if i := find(t.cfg.Objectives, now); i >= 0 {
		return i + 1, nil
	}
	list := strings.Join(t.cfg.Objectives, ", ")
	switch {
	case now == "":
		return 0, errors.New("the response names no service objective")
	case strings.EqualFold(now, "ElasticPool"):
		return 0, errors.New("the database is in an elastic pool: it has the pool's resources, so it cannot be scaled")
	}
	return 0, fmt.Errorf("the database has the service objective %.80q, which is not in the list %s: something else has set it, and it is not changed; add it to the list, or set the database to one in the list", now, list)
}

// Scale changes the service objective, and returns when the change is complete. Azure may
// take minutes for it, and ends the connections to the database at the end. While another
// change is in progress, Scale tries again. An objective that is not in the list is not
// changed.
func (t *Target) Scale(ctx context.Context, instances int) error {
	if instances < 1 || instances > len(t.cfg.Objectives) {
		return t.fail(fmt.Errorf("%d instances: the list of service objectives has %d: set min and max to 1 and %[2]d at most", instances, len(t.cfg.Objectives)))
	}
	wanted := map[string]any{"sku": map[string]string{"name": t.cfg.Objectives[instances-1]}}
	err := azclient.RetryConflict(ctx, t.cfg.Poll, func() error {
		if _, err := t.instances(ctx); err != nil {
			return err
		}
		change, err := t.database.Patch(ctx, wanted)
		if err != nil {
			return err
		}
		_, err = change.Wait(ctx, t.cfg.Poll)
		return err
	})
	if err != nil {
		return t.fail(err)
	}
	switch n, err := t.instances(ctx); {
	case err != nil:
		return t.fail(err)
	case n != instances:
		return t.fail(fmt.Errorf("%s requested, but the database has %s", t.cfg.Objectives[instances-1], t.cfg.Objectives[n-1]))
	}
	return nil
}

// database is what is read of the JSON of Resource Manager.
type database struct {
	Properties struct {
		Current   string `json:"currentServiceObjectiveName"`
		Requested string `json:"requestedServiceObjectiveName"`
	} `json:"properties"`
}

func (t *Target) fail(err error) error {
	return fmt.Errorf("azure sql database %s/%s: %w", t.cfg.Server, t.cfg.Database, azerror.Shorten(err))
}
