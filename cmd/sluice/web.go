package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sluice-go/sluice/cmd/sluice/internal/dashboard"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
)

// webFlags are those of commands that have a dashboard. Add and addScaling
// declare them: the second is for those without an autoscaler of their own.
type webFlags struct {
	address, cert, key, tokenEnv, autoscaler, auditGroup string
	acme                                                 []string
}

func (w *webFlags) add(f *pflag.FlagSet) {
	f.StringVar(&w.address, "web", "", "show a dashboard at this `address` over HTTPS, like 127.0.0.1:8443")
	f.StringVar(&w.cert, "web-cert", "", "its certificate, a PEM `file` (default one of its own)")
	f.StringVar(&w.key, "web-key", "", "its certificate's key, a PEM `file`")
	f.StringSliceVar(&w.acme, "web-acme", nil, "obtain certificates for these public `names` from Let's Encrypt, whose terms this accepts; --web must be their port 443")
	f.StringVar(&w.tokenEnv, "web-token-env", "", "the environment `variable` that holds the token to sign in with; needed beyond loopback")
	f.StringVar(&w.auditGroup, "web-audit-group", defaultAuditGroup, "`name` of the consumer group that audits from the dashboard read by")
}

func (w *webFlags) addScaling(f *pflag.FlagSet) {
	f.StringVar(&w.autoscaler, "web-autoscale", "", "show the decisions of the autoscaler of this `CONFIG.yaml` too, wherever it runs")
}

// defaultAuditGroup is that of sluice audit hub.
const defaultAuditGroup = "sluice-audit"

// config checks the flags and reads the token. It returns nil if no dashboard is wanted.
func (w *webFlags) config() (*dashboard.Config, error) {
	cfg := &dashboard.Config{
		Address: w.address, CertFile: w.cert, KeyFile: w.key, ACME: w.acme, Autoscaler: w.autoscaler, AuditGroup: w.auditGroup,
	}
	switch {
	case w.address == "" && (w.cert != "" || w.key != "" || w.tokenEnv != "" || w.autoscaler != "" || w.auditGroup != defaultAuditGroup || len(w.acme) > 0):
		return nil, usage.Errorf("flags that begin with --web- need --web ADDRESS")
	case w.address == "":
		return nil, nil
	case (w.cert == "") != (w.key == ""):
		return nil, usage.Errorf("--web-cert and --web-key must be given together")
	case w.cert != "" && len(w.acme) > 0:
		return nil, usage.Errorf("--web-acme and --web-cert exclude each other")
	}
	if w.tokenEnv != "" {
		cfg.Token = strings.TrimSpace(os.Getenv(w.tokenEnv))
		if cfg.Token == "" {
			return nil, fmt.Errorf("--web-token-env: the environment variable %s is empty: put the dashboard's token into it", w.tokenEnv)
		}
	}
	return cfg, nil
}

// openDashboard opens the dashboard if the flags ask for one, and returns nil if not. Its files
// are kept in the data directory dir.
func (a *app) openDashboard(ctx context.Context, flags *webFlags, dir string, shown ...dashboard.Pipeline) (*dashboard.Dashboard, error) {
	cfg, err := flags.config()
	if err != nil || cfg == nil {
		return nil, err
	}
	cfg.Dir, cfg.Log = dir, a.log
	return dashboard.Open(ctx, cfg, shown...)
}
