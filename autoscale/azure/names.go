package azure

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"strings"
)

const (
	// maxPlain and maxSlug keep the name of a dead-letter queue within the 63 characters
	// of Azure: prefix, "metrics" and "-poison".
	maxPlain = 40
	maxSlug  = 24
	// digest is the length of the part of a prefix that distinguishes names which Azure
	// does not allow in the name of a queue.
	digest = 16
)

var (
	plainName   = regexp.MustCompile(`^[a-z0-9](-?[a-z0-9])*$`)
	digestAtEnd = regexp.MustCompile(fmt.Sprintf(`-[0-9a-f]{%d}$`, digest))
	notPlain    = regexp.MustCompile(`[^a-z0-9]+`)
)

// QueuePrefix returns what the names of a resource's queues begin with, so that the
// resources of a storage account have queues of their own: "orders-" for orders, whose
// points are in the queue orders-metrics. No two resources have the same prefix. A name
// that Azure does not allow for queues, such as Größe or one of more than 40 characters,
// is replaced by what is allowed of it and a digest.
func QueuePrefix(resource string) string {
	if len(resource) <= maxPlain && plainName.MatchString(resource) && !digestAtEnd.MatchString(resource) {
		return resource + "-"
	}
	slug := strings.Trim(notPlain.ReplaceAllString(strings.ToLower(resource), "-"), "-")
	slug = strings.Trim(slug[:min(len(slug), maxSlug)], "-")
	if slug != "" {
		slug += "-"
	}
	sum := sha256.Sum256([]byte(resource))
	return fmt.Sprintf("%s%.*x-", slug, digest/2, sum[:digest/2])
}
