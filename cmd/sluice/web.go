package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/sluice-go/sluice/cmd/sluice/internal/dashboard"
	"github.com/sluice-go/sluice/cmd/sluice/internal/flights"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
)

// webFlags are the flags of commands with a dashboard: those of add, and that of addScaling if the
// command has no autoscaler itself.
type webFlags struct {
	address, cert, key, dir, tokenEnv, auditGroup string
	acme, autoscalers                             []string
}

func (w *webFlags) add(f *pflag.FlagSet) {
	f.StringVar(&w.address, "web", "", "serve a dashboard over HTTPS at this `address`, such as 127.0.0.1:8443")
	f.StringVar(&w.cert, "web-cert", "", "certificate of the dashboard, a PEM `file` (default self-signed)")
	f.StringVar(&w.key, "web-key", "", "private key of that certificate, a PEM `file`")
	f.StringVar(&w.dir, "web-dir", "", "`directory` for the self-signed certificate, in web/, and those of --web-acme, in acme/ (default that of --data, or sluice-data)")
	f.StringSliceVar(&w.acme, "web-acme", nil, "get certificates for these public `names` from Let's Encrypt and accept its terms; --web must be port 443 of these names")
	f.StringVar(&w.tokenEnv, "web-token-env", "", "environment `variable` with the token for signing in; required unless --web is a loopback address")
	f.StringVar(&w.auditGroup, "web-audit-group", flights.AuditGroup, "`name` of the consumer group that audits from the dashboard read with")
}

func (w *webFlags) addScaling(f *pflag.FlagSet) {
	f.StringSliceVar(&w.autoscalers, "web-autoscale", nil, "also show the decisions of the autoscalers of these `CONFIG.yaml` files, which may run in other processes")
}

// config checks the flags and reads the token. It returns nil if no dashboard is wanted.
func (w *webFlags) config() (*dashboard.Config, error) {
	cfg := &dashboard.Config{
		Address: w.address, CertFile: w.cert, KeyFile: w.key, ACME: w.acme, Autoscalers: w.autoscalers, AuditGroup: w.auditGroup,
	}
	switch {
	case w.address == "" && (w.cert != "" || w.key != "" || w.tokenEnv != "" || len(w.autoscalers) > 0 || w.auditGroup != flights.AuditGroup || len(w.acme) > 0 || w.dir != ""):
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
// are kept in the data directory dir, unless --web-dir names another.
func (a *app) openDashboard(ctx context.Context, flags *webFlags, dir string, shown ...dashboard.Pipeline) (*dashboard.Dashboard, error) {
	cfg, err := flags.config()
	if err != nil || cfg == nil {
		return nil, err
	}
	cfg.Dir, cfg.Log = cmp.Or(flags.dir, dir), a.log
	d, err := dashboard.Open(ctx, cfg, shown...)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		err = fmt.Errorf("%w: choose a directory that can be written with --web-dir, or give a certificate with --web-cert and --web-key", err)
	}
	return d, err
}
