package main

import (
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
	"github.com/sluice-go/sluice/emulator"
)

// entraFlags are the flags of the emulator's issuer of access tokens.
type entraFlags struct {
	listen     string
	texts      []string
	principals []emulator.Principal
}

func (e *entraFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&e.listen, "entra", "", "`address` of an issuer of access tokens, such as 127.0.0.1:5680 (default none)")
	f.StringArrayVar(&e.texts, "entra-principal", nil, "an identity that gets tokens, `ID=SECRET[:RIGHTS]`, by default with all rights; can be repeated")
}

// parse checks the flags. Its errors do not contain a secret.
func (e *entraFlags) parse() error {
	if (e.listen == "") != (len(e.texts) == 0) {
		return usage.Errorf("--entra ADDRESS and --entra-principal ID=SECRET need each other")
	}
	for i, text := range e.texts {
		id, secret, _ := strings.Cut(text, "=")
		secret, rights, limited := strings.Cut(secret, ":")
		if id == "" || secret == "" {
			return usage.Errorf("--entra-principal number %d: write ID=SECRET or ID=SECRET:RIGHTS", i+1)
		}
		p := emulator.Principal{ID: id, Secret: secret}
		if limited {
			var err error
			if p.Rights, err = emulator.ParseRights(rights); err != nil {
				return usage.Errorf("--entra-principal %s: the text after the colon: %v", id, err)
			}
		}
		e.principals = append(e.principals, p)
	}
	return nil
}

// start returns nil if no issuer was asked for.
func (e *entraFlags) start(log *slog.Logger) (*emulator.Issuer, error) {
	if e.listen == "" {
		return nil, nil
	}
	return emulator.StartIssuer(e.principals, &emulator.IssuerConfig{Listen: e.listen, Log: log})
}
