package formats

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// azure is Azure Schema Registry.
type azure struct{ *registryClient }

// azureScope is what a token for Schema Registry is issued for.
const azureScope = "https://eventhubs.azure.net/.default"

// azureVersion is the version of the interface,
// https://learn.microsoft.com/rest/api/schemaregistry/.
const azureVersion = "?api-version=2022-10"

// NewAzure returns Azure Schema Registry: the content type of an event is avro/binary+ID. The
// namespace is a host such as contoso.servicebus.windows.net. config may be nil. It connects when
// it is first used.
func NewAzure(namespace string, credential azcore.TokenCredential, config *tls.Config) Registry {
	c := newRegistryClient("https://"+namespace, config)
	c.authorize = func(r *http.Request) error {
		token, err := credential.GetToken(r.Context(), policy.TokenRequestOptions{Scopes: []string{azureScope}})
		if err == nil {
			r.Header.Set("Authorization", "Bearer "+token.Token)
		}
		return err
	}
	return azure{c}
}

// azureContent is the content type of events; the id is a GUID.
var azureContent = regexp.MustCompile(`(?i)^\s*avro/binary\s*\+\s*([0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\s*$`)

func (azure) split(body []byte, contentType string) (string, []byte, error) {
	m := azureContent.FindStringSubmatch(contentType)
	if m == nil {
		return "", nil, fmt.Errorf("its content type %.60q is not avro/binary+ID, with the id of the schema", contentType)
	}
	return strings.ToLower(strings.ReplaceAll(m[1], "-", "")), body, nil
}

func (c azure) schema(ctx context.Context, id string) (*registered, error) {
	path := "/$schemaGroups/$schemas/" + id + azureVersion
	a, err := c.get(ctx, path)
	if err != nil {
		return nil, err
	}
	content := strings.ToLower(strings.ReplaceAll(a.header.Get("Content-Type"), " ", ""))
	var problem struct { // earlier versions of the service have the number
		Error struct{ Code string }
		Code  int
	}
	switch {
	case a.status == http.StatusNotFound && a.object(&problem) && (problem.Error.Code != "" || problem.Code == http.StatusNotFound):
		return nil, &unknownSchemaError{id, c.base}
	case a.status != http.StatusOK || a.header.Get("Schema-Id") == "":
		return nil, c.refused(path, a)
	case !strings.Contains(content, "serialization=avro"):
		return &registered{kind: schemaKind(content)}, nil
	}
	return &registered{kind: kindAvro, text: string(a.body)}, nil
}

// check asks for the schema 0, which no registry has.
func (c azure) check(ctx context.Context) error {
	_, err := c.schema(ctx, strings.Repeat("0", 32))
	if _, ok := errors.AsType[*unknownSchemaError](err); ok {
		return nil
	}
	return err
}
