package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice/autoscale/config"
	"github.com/sluice-go/sluice/cmd/sluice/internal/keda"
	"github.com/sluice-go/sluice/cmd/sluice/internal/term"
	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
)

func (a *app) autoscaleKEDA() *cobra.Command {
	var address string
	var files keda.TLS
	cmd := &cobra.Command{
		Use:   "keda FILE.yaml",
		Short: "Answer KEDA with the lag of consumer groups",
		Long: `Run an external scaler for KEDA over gRPC: KEDA asks for the lag of consumer groups, and
scales. The lag is counted by exact positions: the stored checkpoints against the ends of
the partitions. FILE.yaml names the consumer groups; go doc ./autoscale/config Lags has its
keys, and docs/keda.md those of a ScaledObject.`,
		Example: "  sluice autoscale keda lags.yaml --listen :6000",
		Args:    needs(1, 1, "name the file with the consumer groups: pass FILE.yaml; docs/keda.md has an example"),
		RunE: a.runE(func(ctx context.Context, args []string) error {
			switch {
			case address == "":
				return usage.Errorf("--listen is needed, such as --listen :6000")
			case (files.Certificate == "") != (files.Key == ""):
				return usage.Errorf("--tls-cert and --tls-key go together")
			case files.ClientCA != "" && files.Certificate == "":
				return usage.Errorf("--tls-client-ca needs --tls-cert and --tls-key")
			}
			return a.serveKEDA(ctx, args[0], address, files)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&address, "listen", "", "the `address` of the gRPC server, such as :6000")
	f.StringVar(&files.Certificate, "tls-cert", "", "serve TLS with the certificate in this PEM `file`; without it, plain text")
	f.StringVar(&files.Key, "tls-key", "", "the PEM `file` of the certificate's key")
	f.StringVar(&files.ClientCA, "tls-client-ca", "", "accept only clients with a certificate of an authority in this PEM `file`")
	return cmd
}

func (a *app) serveKEDA(ctx context.Context, path, address string, files keda.TLS) (err error) {
	file, err := config.LoadLags(path)
	if err != nil {
		return notThere(err, "check the path; docs/keda.md has an example")
	}
	tls, err := files.Config()
	if err != nil {
		return err
	}
	ctx, stop := term.UntilInterrupted(ctx)
	defer stop()
	lags, done, err := file.Open(ctx)
	if err != nil {
		return unlessInterrupted(ctx, err)
	}
	defer func() { err = errors.Join(err, closeSoon(ctx, done)) }()
	listener, err := listen("--listen", address)
	if err != nil {
		return err
	}
	a.log.Info("external scaler for KEDA", "at", listener.Addr().String(), "tls", tls != nil, "resources", len(lags))
	return keda.Serve(ctx, listener, lags, tls, a.log)
}
