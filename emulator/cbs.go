package emulator

import (
	"net/http"

	"github.com/sluice-go/sluice/internal/amqp"
)

// putToken handles a request to $cbs (AMQP claims-based security, draft 01): a token in the body, the audience and the kind of token in the
// application properties.
func (c *client) putToken(_ node, req *amqp.Message) reply {
	if op := req.Properties.String("operation"); op != "put-token" {
		return reply{status: http.StatusBadRequest, description: "InvalidOperation: $cbs knows the operation put-token only."}
	}
	token, ok := req.Value.(string)
	if !ok {
		return reply{status: http.StatusBadRequest, description: "MalformedToken: The request's body must be the token, as a string."}
	}
	if why := c.auth.put(token, req.Properties.String("name")); why != accepted {
		return reply{status: http.StatusUnauthorized, description: string(why)}
	}
	return reply{status: http.StatusAccepted, description: "Accepted"}
}
