package emulator

import (
	"net/http"
	"strings"
	"time"
)

// authenticate checks the token of a request, whose resource must be the URL, with or
// without the query, or above it. It reports whether the token gives the right to manage.
func (a *busAdmin) authenticate(r *http.Request) (manages bool, err error) {
	if a.bus.open() {
		return true, nil
	}
	// Azure's client for Go leaves Bearer out.
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if a.bus.issuer != nil && (bearer || !strings.HasPrefix(token, sasPrefix)) {
		g, refused := a.bus.issuer.verify(token, time.Now())
		if refused != accepted {
			return false, adminErrorf(http.StatusUnauthorized, "SubCode=40100. %s", string(refused))
		}
		return g.rights.has(Manage), nil
	}
	why := malformed
	for _, path := range []string{r.URL.Path, r.URL.RequestURI()} {
		g, refused := verify(a.bus.keys, time.Now(), r.Header.Get("Authorization"), "https://"+r.Host+path)
		if refused == accepted {
			return g.rights.has(Manage), nil
		}
		why = refused
	}
	return false, adminErrorf(http.StatusUnauthorized, "SubCode=40100. %s", string(why))
}

// forbidden is the response to a request without the right to manage: Azure's text, which
// names the operation for subscriptions, and the rights for other entities.
func (a *busAdmin) forbidden(r *http.Request, path string) error {
	act, known := map[string][2]string{
		http.MethodGet:    {"Manage,EntityRead claims required for this operation.", "GetSubscription"},
		http.MethodPut:    {"Authorization failed for specified action: Manage,EntityWrite.", "CreateOrUpdateSubscription"},
		http.MethodDelete: {"Authorization failed for specified action: Manage,EntityDelete.", "DeleteSubscription"},
	}[r.Method]
	if !known {
		act = [2]string{"Manage claim required for this operation: " + r.Method, r.Method}
	}
	lower := strings.ToLower(path)
	switch {
	case strings.HasSuffix(lower, "/subscriptions"):
		act[1] = "EnumerateSubscriptions"
	case strings.Contains(lower, "/subscriptions/"):
	default:
		return adminErrorf(http.StatusUnauthorized, "%s", act[0])
	}
	return adminErrorf(http.StatusUnauthorized, "401 SubCode=40100: Unauthorized : Unauthorized access for '%s' operation: it requires the claim Manage.", act[1])
}

// missing reports whether a request reads a queue or topic that does not exist. That takes no
// right, as on Azure.
func (a *busAdmin) missing(r *http.Request, path string) bool {
	_, isQueue := a.bus.broker.Queue(path)
	_, isTopic := a.bus.broker.Topic(path)
	return r.Method == http.MethodGet && !isQueue && !isTopic && !strings.HasPrefix(path, "$") && !strings.Contains(strings.ToLower(path), "/subscriptions")
}
