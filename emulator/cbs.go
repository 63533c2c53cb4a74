package emulator

import (
	"context"
	"net/http"

	"github.com/sluice-go/sluice/internal/amqp"
)

// cbsCredit is how many tokens may be on their way to $cbs on one connection.
const cbsCredit = 10

// putToken handles a request to $cbs (AMQP claims-based security, draft 01): a token in
// the body, the audience and the kind of token in the application properties.
func (p *peer) putToken(_ context.Context, _ *amqp.Link, _ node, req *amqp.Message) (reply, error) {
	if op := req.Properties.String("operation"); op != "put-token" {
		return badRequest("InvalidOperation: $cbs supports the operation put-token only."), nil
	}
	token, ok := req.Value.(string)
	if !ok {
		return badRequest("MalformedToken: The request's body must be the token, as a string."), nil
	}
	if why := p.auth.put(token, req.Properties.String("name")); why != accepted {
		return reply{status: http.StatusUnauthorized, description: string(why), condition: amqp.CondUnauthorized}, nil
	}
	p.conn.Trust()
	return reply{status: http.StatusAccepted, description: "Accepted"}, nil
}
