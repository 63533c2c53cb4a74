package emulator

import (
	"encoding/xml"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice/emulator/internal/servicebus"
)

// Namespaces in the documents of the administration API. Some clients depend on the
// prefix d2p1 of the counts.
const (
	busSpace    = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
	countsSpace = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
)

// forever is how Azure writes an unlimited duration: the longest one of .NET.
const forever = "P10675199DT2H48M5.4775807S"

type atomFeed struct {
	XMLName xml.Name    `xml:"http://www.w3.org/2005/Atom feed"`
	Title   string      `xml:"title"`
	Links   []atomLink  `xml:"link"`
	Entries []atomEntry `xml:"entry"`
}

// atomLink is the URL of this page or the next.
type atomLink struct {
	Rel  string `xml:"rel,attr"`
	Href string `xml:"href,attr"`
}

type atomEntry struct {
	XMLName xml.Name    `xml:"http://www.w3.org/2005/Atom entry"`
	ID      string      `xml:"id"` // the entity's URL; its path, until at completes it
	Title   string      `xml:"title"`
	Content atomContent `xml:"content"`
}

// completeURLs completes the paths of entries to URLs.
func completeURLs(host string, document any) any {
	absolute := func(e atomEntry) atomEntry {
		e.ID = (&url.URL{Scheme: "https", Host: host, Path: e.ID}).String()
		return e
	}
	switch d := document.(type) {
	case atomEntry:
		return absolute(d)
	case *atomFeed:
		for i := range d.Entries {
			d.Entries[i] = absolute(d.Entries[i])
		}
	}
	return document
}

type atomContent struct {
	Type        string `xml:"type,attr"`
	Description any
}

// description is the description of a queue, topic or subscription.
type description struct {
	XMLName                                   xml.Name
	LockDuration                              string       `xml:",omitempty"`
	MaxSizeInMegabytes                        int64        `xml:",omitempty"`
	RequiresDuplicateDetection                *bool        `xml:",omitempty"`
	RequiresSession                           *bool        `xml:",omitempty"`
	DefaultMessageTimeToLive                  string       `xml:",omitempty"`
	DeadLetteringOnMessageExpiration          *bool        `xml:",omitempty"`
	DeadLetteringOnFilterEvaluationExceptions *bool        `xml:",omitempty"`
	DuplicateDetectionHistoryTimeWindow       string       `xml:",omitempty"`
	MaxDeliveryCount                          int          `xml:",omitempty"`
	EnableBatchedOperations                   *bool        `xml:",omitempty"`
	SizeInBytes                               *int64       `xml:",omitempty"`
	MessageCount                              *int64       `xml:",omitempty"`
	Status                                    string       `xml:",omitempty"`
	UserMetadata                              string       `xml:",omitempty"`
	CreatedAt                                 string       `xml:",omitempty"`
	UpdatedAt                                 string       `xml:",omitempty"`
	AccessedAt                                string       `xml:",omitempty"`
	SupportOrdering                           *bool        `xml:",omitempty"`
	CountDetails                              *countDetail `xml:",omitempty"`
	SubscriptionCount                         *int         `xml:",omitempty"`
	AutoDeleteOnIdle                          string       `xml:",omitempty"`
	EnablePartitioning                        *bool        `xml:",omitempty"`
	EntityAvailabilityStatus                  string       `xml:",omitempty"`
	EnableExpress                             *bool        `xml:",omitempty"`

	// Settings that are not supported: a request with them is rejected.
	ForwardTo                     string     `xml:",omitempty"`
	ForwardDeadLetteredMessagesTo string     `xml:",omitempty"`
	MaxMessageSizeInKilobytes     *int64     `xml:",omitempty"`
	DefaultRuleDescription        *struct{}  `xml:",omitempty"`
	AuthorizationRules            []struct{} `xml:"AuthorizationRules>AuthorizationRule,omitempty"`
}

type countDetail struct {
	Space              string `xml:"xmlns:d2p1,attr"`
	Active             int64  `xml:"d2p1:ActiveMessageCount"`
	DeadLetter         int64  `xml:"d2p1:DeadLetterMessageCount"`
	Scheduled          int64  `xml:"d2p1:ScheduledMessageCount"`
	TransferDeadLetter int64  `xml:"d2p1:TransferDeadLetterMessageCount"`
	Transfer           int64  `xml:"d2p1:TransferMessageCount"`
}

// requestEntry is the body of a request: one of the descriptions.
type requestEntry struct {
	Queue        *description `xml:"content>QueueDescription"`
	Topic        *description `xml:"content>TopicDescription"`
	Subscription *description `xml:"content>SubscriptionDescription"`
}

func readEntry(w http.ResponseWriter, r *http.Request) (*requestEntry, error) {
	var e requestEntry
	if err := xml.NewDecoder(http.MaxBytesReader(w, r.Body, maxDescription)).Decode(&e); err != nil {
		return nil, adminErrorf(http.StatusBadRequest, "SubCode=40000. The request isn't the description of an entity: %.200s", err.Error())
	}
	return &e, nil
}

// checkSupported returns an error if the description has settings that are not supported.
func (d *description) checkSupported() error {
	for _, setting := range []struct {
		name string
		set  bool
	}{
		{"RequiresDuplicateDetection", isTrue(d.RequiresDuplicateDetection)},
		{"EnablePartitioning", isTrue(d.EnablePartitioning)},
		{"EnableExpress", isTrue(d.EnableExpress)},
		{"MaxMessageSizeInKilobytes", d.MaxMessageSizeInKilobytes != nil},
		{"ForwardTo", d.ForwardTo != ""},
		{"ForwardDeadLetteredMessagesTo", d.ForwardDeadLetteredMessagesTo != ""},
		{"DefaultRuleDescription", d.DefaultRuleDescription != nil},
		{"AuthorizationRules", len(d.AuthorizationRules) > 0},
	} {
		if setting.set {
			return adminErrorf(http.StatusBadRequest, "SubCode=40000. %s is not supported here: leave it out.", setting.name)
		}
	}
	return nil
}

// window returns the DuplicateDetectionHistoryTimeWindow. Clients require and send it without
// duplicate detection too.
func (d *description) window() (time.Duration, error) {
	window, err := parseISO(d.DuplicateDetectionHistoryTimeWindow)
	switch {
	case err != nil:
		return 0, fmt.Errorf("DuplicateDetectionHistoryTimeWindow: %w", err)
	case window == 0 && d.DuplicateDetectionHistoryTimeWindow != "":
		return 0, fmt.Errorf("DuplicateDetectionHistoryTimeWindow %.40q: must be 20 seconds to 7 days", d.DuplicateDetectionHistoryTimeWindow)
	}
	return window, nil
}

func isTrue(b *bool) bool  { return b != nil && *b }
func isFalse(b *bool) bool { return b != nil && !*b }

// statuses are the names of the values of [servicebus.Status].
var statuses = []string{"Active", "Disabled", "SendDisabled", "ReceiveDisabled"}

func (d *description) status() (servicebus.Status, error) {
	if d.Status == "" {
		return servicebus.Enabled, nil
	}
	i := slices.Index(statuses, d.Status)
	if i < 0 {
		return 0, fmt.Errorf("status %.40q: must be one of %s", d.Status, strings.Join(statuses, ", "))
	}
	return servicebus.Status(i), nil
}

// bytes returns the maximum size of the entity; 0 is the default.
func (d *description) bytes() (int64, error) {
	if d.MaxSizeInMegabytes < 0 || d.MaxSizeInMegabytes > 80<<10 {
		return 0, fmt.Errorf("MaxSizeInMegabytes %d: must be 0 to %d", d.MaxSizeInMegabytes, 80<<10)
	}
	return d.MaxSizeInMegabytes << 20, nil
}

// config converts the description of a queue or subscription.
func (d *description) config() (*servicebus.QueueConfig, error) {
	if err := d.checkSupported(); err != nil {
		return nil, err
	}
	lock, err := parseISO(d.LockDuration)
	if err != nil {
		return nil, fmt.Errorf("LockDuration: %w", err)
	}
	ttl, err := parseISO(d.DefaultMessageTimeToLive)
	if err != nil {
		return nil, fmt.Errorf("DefaultMessageTimeToLive: %w", err)
	}
	status, err := d.status()
	if err != nil {
		return nil, err
	}
	idle, err := parseISO(d.AutoDeleteOnIdle)
	if err != nil {
		return nil, fmt.Errorf("AutoDeleteOnIdle: %w", err)
	}
	window, err := d.window()
	if err != nil {
		return nil, err
	}
	most, err := d.bytes()
	return &servicebus.QueueConfig{
		DeleteIdle: idle, Lock: lock, MaxDeliveries: d.MaxDeliveryCount, TTL: ttl, KeepExpired: isTrue(d.DeadLetteringOnMessageExpiration), MaxBytes: most,
		Sessions: isTrue(d.RequiresSession), Status: status, Metadata: d.UserMetadata,
		Unbatched: isFalse(d.EnableBatchedOperations), KeepFilterErrors: isTrue(d.DeadLetteringOnFilterEvaluationExceptions),
		DuplicateWindow: window,
	}, err
}

// topicConfig converts the description of a topic.
func (d *description) topicConfig() (*servicebus.TopicConfig, error) {
	if err := d.checkSupported(); err != nil {
		return nil, err
	}
	ttl, err := parseISO(d.DefaultMessageTimeToLive)
	if err != nil {
		return nil, fmt.Errorf("DefaultMessageTimeToLive: %w", err)
	}
	status, err := d.status()
	if err != nil {
		return nil, err
	}
	idle, err := parseISO(d.AutoDeleteOnIdle)
	if err != nil {
		return nil, fmt.Errorf("AutoDeleteOnIdle: %w", err)
	}
	window, err := d.window()
	if err != nil {
		return nil, err
	}
	most, err := d.bytes()
	return &servicebus.TopicConfig{
		DeleteIdle: idle, TTL: ttl, MaxBytes: most, Status: status, Metadata: d.UserMetadata,
		Unbatched: isFalse(d.EnableBatchedOperations), Unordered: isFalse(d.SupportOrdering), DuplicateWindow: window,
	}, err
}

func describeAll[T any](all []T, describe func(T) atomEntry) []atomEntry {
	entries := make([]atomEntry, len(all))
	for i, v := range all {
		entries[i] = describe(v)
	}
	return entries
}

func entryOf(path, kind string, d description) atomEntry {
	no, yes := false, true
	d.XMLName = xml.Name{Space: busSpace, Local: kind}
	d.EntityAvailabilityStatus = "Available"
	if kind != "SubscriptionDescription" {
		d.EnablePartitioning, d.EnableExpress, d.RequiresDuplicateDetection = &no, &no, &no
		if d.SupportOrdering == nil { // a queue
			d.SupportOrdering = &yes
		}
	}
	title := path[strings.LastIndex(path, "/Subscriptions/")+1:]
	return atomEntry{ID: path, Title: strings.TrimPrefix(title, "Subscriptions/"), Content: atomContent{Type: "application/xml", Description: d}}
}

func describe(q *servicebus.Queue) description {
	cfg, n := q.Config(), q.Counts()
	total, batched := n.Active+n.DeadLetters+n.Scheduled, !cfg.Unbatched
	return description{
		EnableBatchedOperations: &batched,
		LockDuration:            formatISO(cfg.Lock), RequiresSession: &cfg.Sessions, DefaultMessageTimeToLive: formatISO(cfg.TTL),
		DeadLetteringOnMessageExpiration: &cfg.KeepExpired, MaxDeliveryCount: cfg.MaxDeliveries, MaxSizeInMegabytes: cfg.MaxBytes >> 20,
		MessageCount: &total, SizeInBytes: &n.Bytes, CreatedAt: stamp(q.Created()), UpdatedAt: stamp(q.Updated()),
		AccessedAt: stamp(q.Accessed()), AutoDeleteOnIdle: formatISO(cfg.DeleteIdle),
		Status: statuses[cfg.Status], UserMetadata: cfg.Metadata,
		CountDetails: &countDetail{Space: countsSpace, Active: n.Active, DeadLetter: n.DeadLetters, Scheduled: n.Scheduled},
	}
}

func describeQueue(q *servicebus.Queue) atomEntry {
	d := describe(q)
	d.DuplicateDetectionHistoryTimeWindow = formatISO(q.Config().DuplicateWindow)
	return entryOf(q.Name(), "QueueDescription", d)
}

func describeSubscription(q *servicebus.Queue) atomEntry {
	d, keep := describe(q), q.Config().KeepFilterErrors
	d.DeadLetteringOnFilterEvaluationExceptions = &keep
	if q.Accessed().IsZero() { // clients expect that its creation counts
		d.AccessedAt = d.CreatedAt
	}
	return entryOf(q.Name(), "SubscriptionDescription", d)
}

func describeTopic(t *servicebus.Topic) atomEntry {
	cfg, c, n := t.Config(), t.Counts(), len(t.Subscriptions())
	batched, ordered := !cfg.Unbatched, !cfg.Unordered
	return entryOf(t.Name(), "TopicDescription", description{
		EnableBatchedOperations: &batched, SupportOrdering: &ordered, DuplicateDetectionHistoryTimeWindow: formatISO(cfg.DuplicateWindow),
		DefaultMessageTimeToLive: formatISO(cfg.TTL), MaxSizeInMegabytes: cfg.MaxBytes >> 20, SizeInBytes: &c.Bytes, SubscriptionCount: &n,
		AccessedAt: stamp(t.Accessed()), AutoDeleteOnIdle: formatISO(cfg.DeleteIdle),
		CreatedAt: stamp(t.Created()), UpdatedAt: stamp(t.Updated()), Status: statuses[cfg.Status], UserMetadata: cfg.Metadata,
		CountDetails: &countDetail{Space: countsSpace, Scheduled: c.Scheduled},
	})
}

// defaultRule is the only rule of every subscription: all messages pass.
const defaultRule = "$Default"

type ruleDescription struct {
	XMLName   xml.Name `xml:"http://schemas.microsoft.com/netservices/2010/10/servicebus/connect RuleDescription"`
	Instance  string   `xml:"xmlns:i,attr"`
	Filter    ruleFilter
	Action    ruleAction
	CreatedAt string
	Name      string
}

type ruleFilter struct {
	Type       string `xml:"i:type,attr"`
	Expression string `xml:"SqlExpression"`
	Level      int    `xml:"CompatibilityLevel"`
}

type ruleAction struct {
	Type string `xml:"i:type,attr"`
}

func describeRule(q *servicebus.Queue) atomEntry {
	return atomEntry{ID: q.Name() + "/Rules/" + defaultRule, Title: defaultRule, Content: atomContent{Type: "application/xml", Description: ruleDescription{
		Instance: "http://www.w3.org/2001/XMLSchema-instance", Filter: ruleFilter{Type: "TrueFilter", Expression: "1=1", Level: 20},
		Action: ruleAction{Type: "EmptyRuleAction"}, CreatedAt: stamp(q.Created()), Name: defaultRule,
	}}}
}

type namespaceInfo struct {
	XMLName      xml.Name `xml:"http://schemas.microsoft.com/netservices/2010/10/servicebus/connect NamespaceInfo"`
	CreatedTime  string
	MessagingSKU string
	Units        int `xml:"MessagingUnits,omitempty"` // of the premium tier
	ModifiedTime string
	Name         string
	Type         string `xml:"NamespaceType"`
}

// stamp formats a time; the zero one as Azure does.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

var isoDuration = regexp.MustCompile(`^P(?:(\d{1,8})D)?(?:T(?:(\d{1,8})H)?(?:(\d{1,8})M)?(?:(\d{1,8}(?:\.\d{1,9})?)S)?)?$`)

// parseISO parses a duration such as P1DT2H3M4.5S. It returns 0, unlimited, for an
// empty one and for one that time.Duration can't hold.
func parseISO(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	part := isoDuration.FindStringSubmatch(text)
	if part == nil || text == "P" || strings.HasSuffix(text, "T") {
		return 0, fmt.Errorf("%.40q isn't a duration such as PT1M30S", text)
	}
	seconds := 0.0
	for i, unit := range []float64{86400, 3600, 60, 1} {
		if n, err := strconv.ParseFloat(part[i+1], 64); err == nil { // "" is left out
			seconds += n * unit
		}
	}
	if seconds >= float64(math.MaxInt64/time.Second) {
		return 0, nil
	}
	return time.Duration(math.Round(seconds*1e3)) * time.Millisecond, nil
}

// formatISO formats a duration so that parseISO can parse it.
func formatISO(d time.Duration) string {
	if d == 0 {
		return forever
	}
	text := "P"
	if days := d / (24 * time.Hour); days > 0 {
		text += fmt.Sprintf("%dD", days)
		d -= days * 24 * time.Hour
	}
	if d > 0 {
		text += "T"
	}
	if h := d / time.Hour; h > 0 {
		text += fmt.Sprintf("%dH", h)
		d -= h * time.Hour
	}
	if m := d / time.Minute; m > 0 {
		text += fmt.Sprintf("%dM", m)
		d -= m * time.Minute
	}
	if d > 0 {
		text += strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "S"
	}
	return text
}
