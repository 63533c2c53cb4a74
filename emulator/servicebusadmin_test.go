package emulator_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/Azure/go-amqp"

	"github.com/sluice-go/sluice/emulator"
)

func busAdmin(t testing.TB, srv *emulator.ServiceBus, connection string) *admin.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: srv.AdminCertPool()}}
	t.Cleanup(transport.CloseIdleConnections)
	c, err := admin.NewClientFromConnectionString(connection, &admin.ClientOptions{
		ClientOptions: azcore.ClientOptions{Transport: &http.Client{Transport: transport}, Retry: policy.RetryOptions{MaxRetries: -1}},
	})
	must(t, err)
	return c
}

func wantStatus(t testing.TB, what string, err error, status int) {
	t.Helper()
	var e *azcore.ResponseError
	if !errors.As(err, &e) || e.StatusCode != status {
		t.Errorf("%s: %v, not status %d", what, err, status)
	}
}

func TestBusAdminQueues(t *testing.T) {
	srv := startBus(t, emulator.ServiceBusQueue{}, &emulator.ServiceBusConfig{AdminListen: "127.0.0.1:0"})
	a, ctx := busAdmin(t, srv, srv.AdminConnectionString()), testContext(t)
	created, err := a.CreateQueue(ctx, "a/b", &admin.CreateQueueOptions{Properties: &admin.QueueProperties{
		LockDuration: to.Ptr("PT30S"), MaxDeliveryCount: to.Ptr(int32(2)), DefaultMessageTimeToLive: to.Ptr("P1DT2H3M4.5S"),
		DeadLetteringOnMessageExpiration: to.Ptr(true), MaxSizeInMegabytes: to.Ptr(int32(2048)),
	}})
	must(t, err)
	got, err := a.GetQueue(ctx, "A/B", nil)
	if err != nil || got == nil {
		t.Fatalf("%v, %v", got, err)
	}
	for _, p := range []admin.QueueProperties{created.QueueProperties, got.QueueProperties} {
		if *p.LockDuration != "PT30S" || *p.MaxDeliveryCount != 2 || *p.DefaultMessageTimeToLive != "P1DT2H3M4.5S" || !*p.DeadLetteringOnMessageExpiration ||
			*p.MaxSizeInMegabytes != 2048 || *p.RequiresSession || *p.Status != admin.EntityStatusActive {
			t.Errorf("properties %+v", p)
		}
	}
	_, err = a.CreateQueue(ctx, "a/b", nil)
	wantStatus(t, "create it twice", err, http.StatusConflict)
	got.LockDuration = to.Ptr("PT1M")
	updated, err := a.UpdateQueue(ctx, "a/b", got.QueueProperties, nil)
	if err != nil || *updated.LockDuration != "PT1M" || *updated.MaxDeliveryCount != 2 {
		t.Errorf("updated %v: %v", updated, err)
	}

	// What it counts is what the clients of the queue do.
	c := busClient(t, srv.ConnectionString())
	sendText(t, busSender(t, c, "a/b"), "12345", "12345", "12345")
	r, err := c.NewReceiverForQueue("a/b", nil)
	must(t, err)
	must(t, r.DeadLetterMessage(ctx, receiveText(t, r, "12345")[0], nil))
	n, err := a.GetQueueRuntimeProperties(ctx, "a/b", nil)
	must(t, err)
	if n.ActiveMessageCount != 2 || n.DeadLetterMessageCount != 1 || n.TotalMessageCount != 3 || n.SizeInBytes < 15 || n.ScheduledMessageCount != 0 {
		t.Errorf("counts %+v", n)
	}
	if time.Since(n.CreatedAt) > time.Hour || n.UpdatedAt.Before(n.CreatedAt) || n.AccessedAt.Before(n.CreatedAt) {
		t.Errorf("times %+v", n)
	}

	_, err = a.DeleteQueue(ctx, "a/b", nil)
	must(t, err)
	if got, err := a.GetQueue(ctx, "a/b", nil); got != nil || err != nil {
		t.Errorf("a deleted queue is %v, %v", got, err)
	}
	_, err = a.DeleteQueue(ctx, "a/b", nil)
	wantStatus(t, "delete it twice", err, http.StatusNotFound)
	_, err = a.UpdateQueue(ctx, "a/b", admin.QueueProperties{}, nil)
	wantStatus(t, "update what isn't there", err, http.StatusNotFound)
	for what, p := range map[string]admin.QueueProperties{
		"a long lock": {LockDuration: to.Ptr("PT6M")}, "no duration": {LockDuration: to.Ptr("1 minute")}, "forwarding": {ForwardTo: to.Ptr("sb://x/y")},
		"long metadata": {UserMetadata: to.Ptr(strings.Repeat("m", 1025))}, "an unknown status": {Status: to.Ptr(admin.EntityStatus("Asleep"))},
		"duplicate detection": {RequiresDuplicateDetection: to.Ptr(true)}, "partitions": {EnablePartitioning: to.Ptr(true)},
	} {
		_, err := a.CreateQueue(ctx, "refused", &admin.CreateQueueOptions{Properties: &p})
		wantStatus(t, what, err, http.StatusBadRequest)
	}
}

func TestBusAdminTopics(t *testing.T) {
	srv := startBus(t, emulator.ServiceBusQueue{}, &emulator.ServiceBusConfig{AdminListen: "127.0.0.1:0"})
	a, ctx := busAdmin(t, srv, srv.AdminConnectionString()), testContext(t)
	_, err := a.CreateTopic(ctx, "events", nil)
	must(t, err)
	s, err := a.CreateSubscription(ctx, "events", "mine", &admin.CreateSubscriptionOptions{Properties: &admin.SubscriptionProperties{MaxDeliveryCount: to.Ptr(int32(5))}})
	if err != nil || *s.MaxDeliveryCount != 5 || *s.LockDuration != "PT1M" {
		t.Fatalf("created %+v: %v", s, err)
	}
	c := busClient(t, srv.ConnectionString())
	sendText(t, busSender(t, c, "events"), "a", "b")
	n, err := a.GetSubscriptionRuntimeProperties(ctx, "events", "mine", nil)
	if err != nil || n == nil || n.ActiveMessageCount != 2 || n.TotalMessageCount != 2 || n.DeadLetterMessageCount != 0 {
		t.Fatalf("counts %+v: %v", n, err)
	}
	topic, err := a.GetTopicRuntimeProperties(ctx, "events", nil)
	if err != nil || topic == nil || topic.SubscriptionCount != 1 || topic.SizeInBytes == 0 {
		t.Fatalf("topic %+v: %v", topic, err)
	}
	updated, err := a.UpdateSubscription(ctx, "events", "mine", admin.SubscriptionProperties{MaxDeliveryCount: to.Ptr(int32(7))}, nil)
	if err != nil || *updated.MaxDeliveryCount != 7 {
		t.Fatalf("updated %+v: %v", updated, err)
	}
	got, err := a.GetSubscription(ctx, "events", "mine", nil)
	if err != nil || got == nil || *got.MaxDeliveryCount != 7 || got.SubscriptionName != "mine" {
		t.Fatalf("subscription %+v: %v", got, err)
	}
	_, err = a.CreateSubscription(ctx, "events", "mine", nil)
	wantStatus(t, "create it twice", err, http.StatusConflict)
	_, err = a.CreateSubscription(ctx, "nowhere", "mine", nil)
	wantStatus(t, "subscribe to nothing", err, http.StatusNotFound)
	_, err = a.DeleteSubscription(ctx, "events", "mine", nil)
	must(t, err)
	if got, err := a.GetSubscription(ctx, "events", "mine", nil); got != nil || err != nil {
		t.Errorf("a deleted subscription is %v, %v", got, err)
	}
	_, err = a.DeleteTopic(ctx, "events", nil)
	must(t, err)
	if got, err := a.GetTopic(ctx, "events", nil); got != nil || err != nil {
		t.Errorf("a deleted topic is %v, %v", got, err)
	}
}

func TestBusAdminLists(t *testing.T) {
	srv := startBus(t, emulator.ServiceBusQueue{}, &emulator.ServiceBusConfig{AdminListen: "127.0.0.1:0"})
	a, ctx := busAdmin(t, srv, srv.AdminConnectionString()), testContext(t)
	want := []string{"orders"}
	for i := range 120 {
		name := fmt.Sprintf("q%03d", i)
		_, err := a.CreateQueue(ctx, name, nil)
		must(t, err)
		want = append(want, name)
	}
	for _, size := range []int32{0, 50, 7} {
		var all []string
		for p := a.NewListQueuesPager(&admin.ListQueuesOptions{MaxPageSize: size}); p.More(); {
			page, err := p.NextPage(ctx)
			must(t, err)
			for _, q := range page.Queues {
				all = append(all, q.QueueName)
			}
		}
		if !slices.Equal(all, want) {
			t.Errorf("by pages of %d: %q", size, all)
		}
	}
	var all []string
	for p := a.NewListTopicsPager(nil); p.More(); {
		page, err := p.NextPage(ctx)
		must(t, err)
		for _, topic := range page.Topics {
			all = append(all, topic.TopicName)
		}
	}
	for p := a.NewListSubscriptionsRuntimePropertiesPager("news", nil); p.More(); {
		page, err := p.NextPage(ctx)
		must(t, err)
		for _, s := range page.SubscriptionRuntimeProperties {
			all = append(all, s.SubscriptionName)
		}
	}
	if !slices.Equal(all, []string{"news", "one", "two"}) {
		t.Errorf("topics and subscriptions: %q", all)
	}
}

func TestBusAdminKeys(t *testing.T) {
	keys := []emulator.Key{{Name: "all", Secret: "s1"}, {Name: "listen", Secret: "s2", Rights: emulator.Listen}}
	srv := startBus(t, emulator.ServiceBusQueue{}, &emulator.ServiceBusConfig{AdminListen: "127.0.0.1:0", Keys: keys})
	try := func(name, secret string) error {
		endpoint, _, _ := strings.Cut(srv.AdminConnectionString(), ";")
		_, err := busAdmin(t, srv, endpoint+";SharedAccessKeyName="+name+";SharedAccessKey="+secret).GetQueue(context.Background(), "orders", nil)
		return err
	}
	must(t, try("all", "s1"))
	wantStatus(t, "another secret", try("all", "s2"), http.StatusUnauthorized)
	wantStatus(t, "no right to manage", try("listen", "s2"), http.StatusUnauthorized)
	wantStatus(t, "an unknown key", try("none", "s1"), http.StatusUnauthorized)
}

// Without the right to manage, requests are refused with Azure's texts; only that an entity
// does not exist can be learned.
func TestBusAdminRights(t *testing.T) {
	keys := []emulator.Key{{Name: "all", Secret: "s1"}, {Name: "both", Secret: "s2", Rights: emulator.Listen | emulator.Send}}
	srv := startBus(t, emulator.ServiceBusQueue{}, &emulator.ServiceBusConfig{AdminListen: "127.0.0.1:0", Keys: keys})
	endpoint, _, _ := strings.Cut(srv.AdminConnectionString(), ";")
	a := busAdmin(t, srv, endpoint+";SharedAccessKeyName=both;SharedAccessKey=s2")
	if q, err := a.GetQueue(testContext(t), "unknown", nil); q != nil || err != nil {
		t.Errorf("an unknown queue: %v, %v", q, err)
	}
	for what, f := range map[string]func() error{
		">Manage,EntityRead claims required":                         func() error { _, err := a.GetQueue(testContext(t), "orders", nil); return err },
		"failed for specified action: Manage,EntityWrite":            func() error { _, err := a.CreateTopic(testContext(t), "new", nil); return err },
		"failed for specified action: Manage,EntityDelete":           func() error { _, err := a.DeleteTopic(testContext(t), "news", nil); return err },
		"Unauthorized access for 'GetSubscription'":                  func() error { _, err := a.GetSubscription(testContext(t), "news", "one", nil); return err },
		"Unauthorized access for 'CreateOrUpdateSubscription'":       func() error { _, err := a.CreateSubscription(testContext(t), "news", "new", nil); return err },
		"Unauthorized access for 'DeleteSubscription'":               func() error { _, err := a.DeleteSubscription(testContext(t), "news", "one", nil); return err },
		"Unauthorized access for 'EnumerateSubscriptions' operation": func() error { _, err := a.NewListSubscriptionsPager("news", nil).NextPage(testContext(t)); return err },
	} {
		err := f()
		wantStatus(t, what, err, http.StatusUnauthorized)
		if err != nil {
			wantText(t, err, what)
		}
	}
}

// A method that is not supported is refused in words, too, without the right to manage.
func TestBusAdminRightsOfOtherMethods(t *testing.T) {
	issuer := startIssuer(t, nil)
	srv := startBus(t, emulator.ServiceBusQueue{}, &emulator.ServiceBusConfig{AdminListen: "127.0.0.1:0", Issuer: issuer})
	endpoint, _, _ := strings.Cut(strings.TrimPrefix(srv.AdminConnectionString(), "Endpoint=sb://"), ";")
	for path, want := range map[string]string{"orders": "Manage claim required for this operation: POST", "news/subscriptions/one": "Unauthorized access for 'POST' operation"} {
		req, err := http.NewRequestWithContext(testContext(t), http.MethodPost, "https://"+strings.TrimSuffix(endpoint, "/")+"/"+path, nil)
		must(t, err)
		req.Header.Set("Authorization", tokenOf(t, issuer, "reader-secret", "https://servicebus.azure.net"))
		res, err := trusting(t, srv.AdminCertPool()).Do(req)
		must(t, err)
		body, err := io.ReadAll(res.Body)
		must(t, err)
		res.Body.Close()
		if res.StatusCode != http.StatusUnauthorized || !strings.Contains(string(body), want) {
			t.Errorf("%s: %d, %s, want %s", path, res.StatusCode, body, want)
		}
	}
}

// Tokens of the issuer are accepted with and without Bearer before them: Azure's client for Go
// leaves it out.
func TestBusAdminTokens(t *testing.T) {
	issuer := startIssuer(t, nil)
	srv := startBus(t, emulator.ServiceBusQueue{}, &emulator.ServiceBusConfig{AdminListen: "127.0.0.1:0", Issuer: issuer})
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: srv.AdminCertPool()}}}
	defer client.CloseIdleConnections()
	endpoint, _, _ := strings.Cut(strings.TrimPrefix(srv.AdminConnectionString(), "Endpoint=sb://"), ";")
	get := func(authorization string) int {
		req, err := http.NewRequestWithContext(testContext(t), http.MethodGet, "https://"+strings.TrimSuffix(endpoint, "/")+"/orders", nil)
		must(t, err)
		req.Header.Set("Authorization", authorization)
		res, err := client.Do(req)
		must(t, err)
		res.Body.Close()
		return res.StatusCode
	}
	token := tokenOf(t, issuer, "all-secret", "https://servicebus.azure.net")
	for authorization, want := range map[string]int{
		token: http.StatusOK, "Bearer " + token: http.StatusOK, "Bearer " + token + "x": http.StatusUnauthorized, "": http.StatusUnauthorized,
		tokenOf(t, issuer, "reader-secret", "https://servicebus.azure.net"): http.StatusUnauthorized,
	} {
		if got := get(authorization); got != want {
			t.Errorf("%.20q: status %d, want %d", authorization, got, want)
		}
	}
}

// Settings without effect here are refused, not forgotten.
func TestBusAdminRefusesSettings(t *testing.T) {
	srv := startBus(t, emulator.ServiceBusQueue{}, &emulator.ServiceBusConfig{AdminListen: "127.0.0.1:0"})
	a := busAdmin(t, srv, srv.AdminConnectionString())
	for setting, p := range map[string]admin.QueueProperties{
		"RequiresDuplicateDetection": {RequiresDuplicateDetection: to.Ptr(true)},
		"MaxMessageSizeInKilobytes":  {MaxMessageSizeInKilobytes: to.Ptr[int64](2048)},
	} {
		_, err := a.CreateQueue(testContext(t), "new", &admin.CreateQueueOptions{Properties: &p})
		wantStatus(t, setting, err, http.StatusBadRequest)
		if err != nil {
			wantText(t, err, setting+" is not supported here")
		}
	}
}

// The window of duplicate detection is kept without it, since clients send it always; what Azure
// refuses is refused.
func TestBusAdminKeepsDuplicateWindow(t *testing.T) {
	cfg, ctx := emulator.ServiceBusConfig{AdminListen: "127.0.0.1:0", Dir: t.TempDir()}, testContext(t)
	srv := startBus(t, emulator.ServiceBusQueue{}, &cfg)
	a := busAdmin(t, srv, srv.AdminConnectionString())
	for i, c := range []struct{ set, want string }{{"", "PT10M"}, {"PT600S", "PT10M"}, {"PT1M", "PT1M"}, {"PT20S", "PT20S"}, {"P7D", "P7D"}} {
		name := fmt.Sprint("queue", i)
		var set *string
		if c.set != "" {
			set = &c.set
		}
		q, err := a.CreateQueue(ctx, name, &admin.CreateQueueOptions{Properties: &admin.QueueProperties{DuplicateDetectionHistoryTimeWindow: set}})
		must(t, err)
		topic, err := a.CreateTopic(ctx, "topic"+name, &admin.CreateTopicOptions{Properties: &admin.TopicProperties{DuplicateDetectionHistoryTimeWindow: set}})
		must(t, err)
		if *q.DuplicateDetectionHistoryTimeWindow != c.want || *topic.DuplicateDetectionHistoryTimeWindow != c.want {
			t.Errorf("%q: the queue has %s, the topic %s", c.set, *q.DuplicateDetectionHistoryTimeWindow, *topic.DuplicateDetectionHistoryTimeWindow)
		}
	}
	for _, wrong := range []string{"PT19S", "P7DT1S", "PT0S", "P10675199DT2H48M5.4775807S", "ten minutes"} {
		_, err := a.CreateQueue(ctx, "refused", &admin.CreateQueueOptions{Properties: &admin.QueueProperties{DuplicateDetectionHistoryTimeWindow: &wrong}})
		wantStatus(t, wrong, err, http.StatusBadRequest)
	}
	_, err := a.UpdateQueue(ctx, "queue0", admin.QueueProperties{DuplicateDetectionHistoryTimeWindow: to.Ptr("PT2M")}, nil)
	must(t, err)
	must(t, srv.Close())
	srv = startBus(t, emulator.ServiceBusQueue{}, &cfg)
	q, err := busAdmin(t, srv, srv.AdminConnectionString()).GetQueue(ctx, "queue0", nil)
	must(t, err)
	if *q.DuplicateDetectionHistoryTimeWindow != "PT2M" {
		t.Errorf("after a restart %s", *q.DuplicateDetectionHistoryTimeWindow)
	}
}

// Settings that change nothing here are kept, also over a restart: a client compares what it set
// with what it reads.
func TestBusAdminKeepsSettings(t *testing.T) {
	cfg, ctx := emulator.ServiceBusConfig{AdminListen: "127.0.0.1:0", Dir: t.TempDir()}, testContext(t)
	start := func() (*emulator.ServiceBus, *admin.Client) {
		srv := startBus(t, emulator.ServiceBusQueue{}, &cfg)
		return srv, busAdmin(t, srv, srv.AdminConnectionString())
	}
	settings := func(set bool) (admin.QueueProperties, admin.TopicProperties, admin.SubscriptionProperties) {
		return admin.QueueProperties{EnableBatchedOperations: &set}, admin.TopicProperties{EnableBatchedOperations: &set, SupportOrdering: &set},
			admin.SubscriptionProperties{EnableBatchedOperations: &set, EnableDeadLetteringOnFilterEvaluationExceptions: to.Ptr(!set)}
	}
	check := func(when string, a *admin.Client, set bool) {
		q, err1 := a.GetQueue(ctx, "new", nil)
		topic, err2 := a.GetTopic(ctx, "topic", nil)
		sub, err3 := a.GetSubscription(ctx, "topic", "all", nil)
		must(t, errors.Join(err1, err2, err3))
		for setting, kept := range map[string]bool{
			"EnableBatchedOperations of the queue": *q.EnableBatchedOperations == set, "EnableBatchedOperations of the topic": *topic.EnableBatchedOperations == set,
			"SupportOrdering": *topic.SupportOrdering == set, "EnableBatchedOperations of the subscription": *sub.EnableBatchedOperations == set,
			"DeadLetteringOnFilterEvaluationExceptions": *sub.EnableDeadLetteringOnFilterEvaluationExceptions == !set,
		} {
			if !kept {
				t.Errorf("%s: %s differs from what was set", when, setting)
			}
		}
	}
	srv, a := start()
	queue, topic, subscription := settings(false)
	_, err1 := a.CreateQueue(ctx, "new", &admin.CreateQueueOptions{Properties: &queue})
	_, err2 := a.CreateTopic(ctx, "topic", &admin.CreateTopicOptions{Properties: &topic})
	_, err3 := a.CreateSubscription(ctx, "topic", "all", &admin.CreateSubscriptionOptions{Properties: &subscription})
	must(t, errors.Join(err1, err2, err3))
	check("created", a, false)
	must(t, srv.Close())
	_, a = start()
	check("after a restart", a, false)
	queue, topic, subscription = settings(true)
	_, err1 = a.UpdateQueue(ctx, "new", queue, nil)
	_, err2 = a.UpdateTopic(ctx, "topic", topic, nil)
	_, err3 = a.UpdateSubscription(ctx, "topic", "all", subscription, nil)
	must(t, errors.Join(err1, err2, err3))
	check("updated", a, true)
}

// What an entity's status forbids is refused; what it doesn't forbid goes on.
func TestBusAdminStatus(t *testing.T) {
	srv := startBus(t, emulator.ServiceBusQueue{}, &emulator.ServiceBusConfig{AdminListen: "127.0.0.1:0"})
	a, ctx := busAdmin(t, srv, srv.AdminConnectionString()), testContext(t)
	c := busClient(t, srv.ConnectionString())
	refused := func(what string, err error) {
		t.Helper()
		var e *amqp.Error
		if !errors.As(err, &e) || e.Condition != "com.microsoft:entity-disabled" {
			t.Errorf("%s: %v", what, err)
		}
	}
	sendText(t, busSender(t, c, "orders"), "before")
	for _, status := range []admin.EntityStatus{admin.EntityStatusDisabled, admin.EntityStatusSendDisabled, admin.EntityStatusReceiveDisabled, admin.EntityStatusActive} {
		q, err := a.GetQueue(ctx, "orders", nil)
		must(t, err)
		q.Status = &status
		updated, err := a.UpdateQueue(ctx, "orders", q.QueueProperties, nil)
		if err != nil || *updated.Status != status {
			t.Fatalf("%s: %+v, %v", status, updated, err)
		}
		err = busSender(t, c, "orders").SendMessage(ctx, &azservicebus.Message{Body: []byte(status)}, nil)
		if status == admin.EntityStatusDisabled || status == admin.EntityStatusSendDisabled {
			refused("send while "+string(status), err)
		} else {
			must(t, err)
		}
		r := busReceiver(t, c, "orders", nil)
		if status == admin.EntityStatusDisabled || status == admin.EntityStatusReceiveDisabled {
			_, err := r.ReceiveMessages(ctx, 1, nil)
			refused("receive while "+string(status), err)
		} else {
			ms, err := r.ReceiveMessages(ctx, 1, nil)
			must(t, err)
			must(t, r.AbandonMessage(ctx, ms[0], nil))
		}
		must(t, r.Close(ctx))
	}
	// A subscription that is disabled gets messages all the same; a topic that is, takes none.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: srv.AdminCertPool()}}}
	t.Cleanup(client.CloseIdleConnections)
	endpoint, _, _ := strings.Cut(strings.TrimPrefix(srv.AdminConnectionString(), "Endpoint=sb://"), ";")
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, "https://"+endpoint+"/news/Subscriptions/one", strings.NewReader( // the client doesn't send it
		`<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><SubscriptionDescription><Status>Disabled</Status></SubscriptionDescription></content></entry>`))
	must(t, err)
	req.Header.Set("If-Match", "*")
	res, err := client.Do(req)
	must(t, err)
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("disabled the subscription: %s", res.Status)
	}
	sendText(t, busSender(t, c, "news"), "a")
	wantCounts(t, srv, "news/Subscriptions/one", 1, 0)
	_, err = busReceiver(t, c, "news/one", nil).ReceiveMessages(ctx, 1, nil)
	refused("receive from a disabled subscription", err)
	got, err := a.GetSubscription(ctx, "news", "one", nil)
	if err != nil || *got.Status != admin.EntityStatusDisabled {
		t.Errorf("subscription %+v: %v", got, err)
	}
	_, err = a.UpdateTopic(ctx, "news", admin.TopicProperties{Status: to.Ptr(admin.EntityStatusDisabled), UserMetadata: to.Ptr("closed")}, nil)
	must(t, err)
	refused("send to a disabled topic", busSender(t, c, "news").SendMessage(ctx, &azservicebus.Message{}, nil))
	_, err = busReceiver(t, c, "news/two", nil).ReceiveMessages(ctx, 1, nil)
	refused("receive from a subscription of a disabled topic", err)
	topic, err := a.GetTopic(ctx, "news", nil)
	if err != nil || *topic.Status != admin.EntityStatusDisabled || *topic.UserMetadata != "closed" {
		t.Errorf("topic %+v: %v", topic, err)
	}
}

// The namespace, and the one rule that subscriptions have, can be read. Other rules are refused.
func TestBusAdminRules(t *testing.T) {
	srv := startBus(t, emulator.ServiceBusQueue{}, &emulator.ServiceBusConfig{AdminListen: "127.0.0.1:0", Premium: true})
	a, ctx := busAdmin(t, srv, srv.AdminConnectionString()), testContext(t)
	ns, err := a.GetNamespaceProperties(ctx, nil)
	if err != nil || ns.SKU != "Premium" || time.Since(ns.CreatedTime) > time.Hour {
		t.Errorf("namespace %+v: %v", ns, err)
	}
	rule, err := a.GetRule(ctx, "news", "one", "$Default", nil)
	if err != nil || rule == nil || rule.Name != "$Default" {
		t.Fatalf("rule %+v: %v", rule, err)
	}
	if _, ok := rule.Filter.(*admin.TrueFilter); !ok {
		t.Errorf("filter %T", rule.Filter)
	}
	var names []string
	for p := a.NewListRulesPager("news", "one", nil); p.More(); {
		page, err := p.NextPage(ctx)
		must(t, err)
		for _, r := range page.Rules {
			names = append(names, r.Name)
		}
	}
	if !slices.Equal(names, []string{"$Default"}) {
		t.Errorf("rules %q", names)
	}
	_, err = a.CreateRule(ctx, "news", "one", &admin.CreateRuleOptions{Name: to.Ptr("big"), Filter: &admin.SQLFilter{Expression: "size > 10"}})
	wantStatus(t, "create a rule", err, http.StatusBadRequest)
	_, err = a.DeleteRule(ctx, "news", "one", "$Default", nil)
	wantStatus(t, "delete the rule", err, http.StatusBadRequest)
	if rule, err := a.GetRule(ctx, "news", "one", "other", nil); rule != nil || err != nil {
		t.Errorf("another rule: %+v, %v", rule, err)
	}
}

// When Close returns, nothing of the namespace runs any more.
func TestBusCloseLeavesNothingRunning(t *testing.T) {
	srv, err := emulator.StartServiceBus([]emulator.ServiceBusQueue{{Name: "orders"}}, nil,
		&emulator.ServiceBusConfig{AdminListen: "127.0.0.1:0", TLSListen: "127.0.0.1:0"})
	must(t, err)
	c := busClient(t, srv.ConnectionString())
	sendText(t, busSender(t, c, "orders"), "a", "b")
	receiveText(t, busReceiver(t, c, "orders", nil), "a") // the link waits for more
	if q, err := busAdmin(t, srv, srv.AdminConnectionString()).GetQueue(testContext(t), "orders", nil); err != nil || q == nil {
		t.Fatalf("%v, %v", q, err)
	}
	must(t, srv.Close())
	for ctx := testContext(t); ; runtime.Gosched() { // one who says that it is done may still have to return
		left := running()
		if len(left) == 0 {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("still running:\n%s", strings.Join(left, "\n\n"))
		}
	}
}
