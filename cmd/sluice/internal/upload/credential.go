package upload

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/sluice-go/sluice/cmd/sluice/internal/usage"
)

// tokenTimeout bounds the first token. The default credential tries several sources, and one of
// them starts a program.
const tokenTimeout = 30 * time.Second

// Scopes of tokens, as the services' client libraries ask for them.
const (
	eventHubsScope  = "https://eventhubs.azure.net//.default"
	serviceBusScope = "https://servicebus.azure.net//.default"
)

// CheckNamespace returns what is wrong with the name of a namespace.
func CheckNamespace(name string) error {
	host, _, _ := strings.Cut(name, ":")
	switch {
	case name == "":
		return usage.Errorf("--namespace: must not be empty")
	case strings.ContainsAny(name, "/;=@ "):
		return usage.Errorf("--namespace: must be a host name only, like contoso.servicebus.windows.net")
	case !strings.Contains(host, ".") && host != "localhost":
		return usage.Errorf("--namespace %s: write the whole host name, like %s.servicebus.windows.net", name, name)
	}
	return nil
}

// defaultCredential returns Entra ID's default credential, once that has given a token for the
// service, so that a missing sign-in has one clear message.
func (d *Destination) defaultCredential(ctx context.Context) (azcore.TokenCredential, error) {
	scope := eventHubsScope
	if d.IsServiceBus() {
		scope = serviceBusScope
	}
	credential, err := azidentity.NewDefaultAzureCredential(nil)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
		defer cancel()
		_, err = credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{scope}})
	}
	if err != nil {
		return nil, fmt.Errorf("namespace %s: no token from Entra ID: sign in with az login, or set AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET (%s)",
			d.Namespace, strings.Join(strings.Fields(err.Error()), " "))
	}
	return credential, nil
}
