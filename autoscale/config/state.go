package config

import (
	"context"
	"fmt"
	"os"
	"regexp"

	"github.com/sluice-go/sluice/autoscale"
	"github.com/sluice-go/sluice/autoscale/azure"
	"github.com/sluice-go/sluice/autoscale/sqlstore"
	"github.com/sluice-go/sluice/internal/config/databasetoken"
	"github.com/sluice-go/sluice/internal/config/strictyaml"
)

// state is the store, and the queues that join parts in separate processes.
type state struct {
	store autoscale.Store
	queue func(ctx context.Context, name string) (autoscale.Queue, error)
}

func (c *Config) readState(n strictyaml.Node) {
	c.places["state"] = n.Place()
	c.state = exactlyOne(n, "state", map[string]func(strictyaml.Node) opener[state]{
		"sqlite": func(n strictyaml.Node) opener[state] {
			var path string
			if !n.Text(&path) {
				return nil
			}
			return sqliteState(path)
		},
		"postgres": func(n strictyaml.Node) opener[state] {
			var url string
			if readSecret("DATABASE_URL", &url)(n); url == "" {
				return nil
			}
			return postgresState(url)
		},
		"azure": c.readAzure,
	})
}

func sqliteState(path string) opener[state] {
	return func(_ context.Context, opts *Options) (state, closer, error) {
		if _, err := os.Stat(path); opts.mustExist && err != nil {
			return state{}, nil, fmt.Errorf("%w: start the autoscaler first, or use the directory that it runs in", err)
		}
		s, err := sqlstore.OpenSQLite(path)
		return sqlState(s, err, opts)
	}
}

// postgresState is the state in a database by its URL, which may say credential=default.
func postgresState(url string) opener[state] {
	return func(ctx context.Context, opts *Options) (state, closer, error) {
		clean, password, err := databasetoken.Postgres(url)
		if err != nil {
			return state{}, nil, err
		}
		s, err := sqlstore.OpenPostgres(ctx, clean, &sqlstore.PostgresConfig{Password: password})
		return sqlState(s, err, opts)
	}
}

func sqlState(s *sqlstore.Store, err error, opts *Options) (state, closer, error) {
	if err != nil {
		return state{}, nil, err
	}
	queue := func(_ context.Context, name string) (autoscale.Queue, error) {
		return s.Queue(opts.resource+"/"+name, 0), nil
	}
	return state{s, queue}, func(context.Context) error { return s.Close() }, nil
}

// queuePrefix is what Azure allows at the start of a queue's name.
var queuePrefix = regexp.MustCompile(`^[a-z0-9](-?[a-z0-9])*-?$`)

// maxPrefix is the length of a prefix with which the name of a dead-letter queue has room
// within the 63 characters of Azure.
const maxPrefix = 42

func (c *Config) readAzure(n strictyaml.Node) opener[state] {
	var account azure.Config
	var credentialName, prefix string
	var published bool
	ok := n.Object(strictyaml.Keys{
		"connection": readSecret("STORAGE_CONNECTION_STRING", &account.Connection),
		"account":    func(n strictyaml.Node) { n.Text(&account.Account) },
		"credential": readCredential(&credentialName),
		"table":      func(n strictyaml.Node) { n.Text(&account.Table) },
		"prefix": func(n strictyaml.Node) {
			if n.Text(&prefix) && (len(prefix) > maxPrefix || !queuePrefix.MatchString(prefix)) {
				n.Fail("%s: write lower-case letters, digits and single hyphens, at most %d characters", n.Shown(), maxPrefix)
			}
		},
		"published_queues": func(n strictyaml.Node) { n.Bool(&published) },
	})
	if !ok {
		return nil
	}
	switch {
	case published && prefix != "":
		n.Fail("prefix and published_queues exclude each other: the published names are metrics, actions and reports")
		return nil
	case (account.Connection != "") == (account.Account != ""):
		n.Fail("needs one of connection (write ${STORAGE_CONNECTION_STRING}) and account (with credential: default)")
		return nil
	case (account.Account != "") != (credentialName != ""):
		n.Fail("account needs credential: default, and the reverse")
		return nil
	}
	if published || prefix != "" {
		c.claims = append(c.claims, claim{what: "the queues " + prefix + autoscale.MetricsQueue + ", " + prefix + autoscale.ActionsQueue + " and " + prefix + autoscale.ReportsQueue,
			id: account.Connection + account.Account + "/" + prefix, place: n.Place(), parts: true})
	}
	return func(ctx context.Context, opts *Options) (state, closer, error) {
		var err error
		if account.Credential, err = credential(credentialName); err != nil {
			return state{}, nil, err
		}
		account.Log = opts.Log
		s, err := azure.OpenStore(ctx, &account)
		if err != nil {
			return state{}, nil, err
		}
		prefix := prefix
		if prefix == "" && !published {
			prefix = azure.QueuePrefix(opts.resource)
		}
		queue := func(ctx context.Context, name string) (autoscale.Queue, error) {
			q, err := azure.OpenQueue(ctx, prefix+name, &account)
			if err != nil {
				return nil, err
			}
			return q, nil
		}
		return state{s, queue}, noClose, nil
	}
}
