package emulator_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

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
	a, ctx := busAdmin(t, srv, srv.AdminConnectionString()), within(t)
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
	if time.Since(n.CreatedAt) > time.Hour || n.UpdatedAt.Before(n.CreatedAt) || !n.AccessedAt.IsZero() {
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
		"sessions": {RequiresSession: to.Ptr(true)}, "a long lock": {LockDuration: to.Ptr("PT6M")}, "no duration": {LockDuration: to.Ptr("1 minute")},
		"forwarding": {ForwardTo: to.Ptr("sb://x/y")}, "metadata": {UserMetadata: to.Ptr("m")}, "disabled": {Status: to.Ptr(admin.EntityStatusDisabled)},
	} {
		_, err := a.CreateQueue(ctx, "refused", &admin.CreateQueueOptions{Properties: &p})
		wantStatus(t, what, err, http.StatusBadRequest)
	}
}

func TestBusAdminTopics(t *testing.T) {
	srv := startBus(t, emulator.ServiceBusQueue{}, &emulator.ServiceBusConfig{AdminListen: "127.0.0.1:0"})
	a, ctx := busAdmin(t, srv, srv.AdminConnectionString()), within(t)
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
	a, ctx := busAdmin(t, srv, srv.AdminConnectionString()), within(t)
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

// When Close returns, nothing of the namespace runs any more.
func TestBusCloseLeavesNothingRunning(t *testing.T) {
	srv, err := emulator.StartServiceBus([]emulator.ServiceBusQueue{{Name: "orders"}}, nil,
		&emulator.ServiceBusConfig{AdminListen: "127.0.0.1:0", TLSListen: "127.0.0.1:0"})
	must(t, err)
	c := busClient(t, srv.ConnectionString())
	sendText(t, busSender(t, c, "orders"), "a", "b")
	receiveText(t, busReceiver(t, c, "orders", nil), "a") // the link waits for more
	if q, err := busAdmin(t, srv, srv.AdminConnectionString()).GetQueue(within(t), "orders", nil); err != nil || q == nil {
		t.Fatalf("%v, %v", q, err)
	}
	must(t, srv.Close())
	for ctx := within(t); ; runtime.Gosched() { // one who says that it is done may still have to return
		left := running()
		if len(left) == 0 {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("still running:\n%s", strings.Join(left, "\n\n"))
		}
	}
}
