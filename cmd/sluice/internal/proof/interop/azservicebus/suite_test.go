package azservicebus

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/cmd/sluice/internal/proof/interop"
	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/need"
)

// Reasons why a test fails.
const (
	forwarding   = "forwarding is refused"
	duplicates   = "duplicate detection is refused"
	partitioned  = "partitioned entities are refused"
	rules        = "rules of subscriptions are refused"
	entityRights = "authorization rules of an entity are refused"
	distance     = "the emulator answers at once: no messages arrive between two waits of different length"
)

// expected are the tests that fail, with the reason.
var expected = map[string]string{
	"TestAdminClient_Queue_Forwarding":                                                      forwarding,
	"TestReceiveWithDifferentWaitTime":                                                      distance,
	"Test_Sender_MessageID":                                                                 partitioned,
	"Test_Sender_UsingPartitionedQueue":                                                     partitioned,
	"Test_Sender_Send_MessageTooBig":                                                        partitioned,
	"admin/TestAdminClient_QueueWithMaxValues":                                              duplicates,
	"admin/TestAdminClient_CreateQueue_Standard":                                            duplicates,
	"admin/TestAdminClient_UpdateQueue":                                                     duplicates,
	"admin/TestAdminClient_TopicAndSubscription_Standard":                                   duplicates,
	"admin/TestAdminClient_CreateQueue_Premium":                                             entityRights,
	"admin/TestAdminClient_UpdateTopic":                                                     entityRights,
	"admin/TestAdminClient_TopicAndSubscription_Premium":                                    rules,
	"admin/TestAdminClient_TopicAndSubscription_WithFalseFilterDefaultSubscriptionRule":     rules,
	"admin/TestAdminClient_TopicAndSubscription_WithCustomFilterDefaultSubscriptionRule":    rules,
	"admin/TestAdminClient_TopicAndSubscription_WithActionDefaultSubscriptionRule":          rules,
	"admin/TestAdminClient_TopicAndSubscription_WithActionAndFilterDefaultSubscriptionRule": rules,
	"admin/TestAdminClient_CreateRules":                                                     rules,
	"admin/TestAdminClient_GetDefaultRule":                                                  rules,
	"admin/TestAdminClient_ListRules_MaxPageSize":                                           rules,
	"admin/TestAdminClient_UnknownFilterRoundtrippingWorks":                                 rules,
	"admin/TestAdminClient_Forwarding":                                                      forwarding,
}

// slow are tests that mostly wait: for retries, and for locks to expire. They are left out
// unless SLUICE_SERVICEBUS_SUITE is "all", as make soak sets it.
const slow = "^(TestClientUnauthorizedCreds|TestReceiverUnauthorizedCreds|TestRenewLocks.*|TestReceiverMessageLockExpires|TestReceiverDeferWithReceiveAndDelete)$"

func TestSuite(t *testing.T) {
	need.RealTime(t)
	t.Parallel()
	issuer, variables := interop.StartIssuer(t)
	standard, standardCertificate := namespace(t, &emulator.ServiceBusConfig{Issuer: issuer})
	premium, premiumCertificate := namespace(t, &emulator.ServiceBusConfig{Issuer: issuer, Premium: true})
	suite := interop.GoSuite{
		Module: "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus", Expected: expected, AtLeast: 225,
		Sometimes:    []string{"TestReceiveWithDifferentWaitTime"}, // it depends on time
		Certificates: append(standardCertificate, premiumCertificate...),
		Variables: append(variables,
			"AZURE_RECORD_MODE=live",
			"SERVICEBUS_ENDPOINT="+address(standard), "SERVICEBUS_ENDPOINT_PREMIUM="+address(premium),
			"SERVICEBUS_CONNECTION_STRING="+connection(standard, keys[0]), "SERVICEBUS_CONNECTION_STRING_PREMIUM="+connection(premium, keys[0]),
			"SERVICEBUS_CONNECTION_STRING_NO_MANAGE="+connection(standard, keys[1]), "SERVICEBUS_CONNECTION_STRING_SEND_ONLY="+connection(standard, keys[2]),
			"SERVICEBUS_CONNECTION_STRING_LISTEN_ONLY="+connection(standard, keys[3]),
		),
	}
	if os.Getenv("SLUICE_SERVICEBUS_SUITE") != "all" {
		suite.LeftOut = slow
	}
	suite.Run(t)
}

var keys = []emulator.Key{
	{Name: "RootManageSharedAccessKey", Secret: "YWxsIHJpZ2h0cw=="},
	{Name: "NoManage", Secret: "bm90IHRvIG1hbmFnZQ==", Rights: emulator.Listen | emulator.Send},
	{Name: "SendOnly", Secret: "dG8gc2VuZA==", Rights: emulator.Send},
	{Name: "ListenOnly", Secret: "dG8gbGlzdGVu", Rights: emulator.Listen},
}

// namespace starts a namespace with the queues that Azure's own template for these tests makes,
// and returns its certificate in PEM.
func namespace(t *testing.T, cfg *emulator.ServiceBusConfig) (*emulator.ServiceBus, []byte) {
	cfg.Listen, cfg.TLSListen, cfg.TLSCertOut, cfg.Keys = "-", "localhost:0", filepath.Join(t.TempDir(), "cert.pem"), keys
	queues := []emulator.ServiceBusQueue{{Name: "testQueue", Lock: 5 * time.Minute}, {Name: "testQueueWithSessions", Lock: 5 * time.Minute, Sessions: true}}
	srv, err := emulator.StartServiceBus(queues, nil, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("close the namespace: %v", err)
		}
	})
	certificate, err := os.ReadFile(cfg.TLSCertOut)
	if err != nil {
		t.Fatal(err)
	}
	return srv, certificate
}

// address is the namespace's name with its port, as the client's certificate check wants it.
func address(srv *emulator.ServiceBus) string {
	_, port, _ := strings.Cut(srv.TLSAddr(), ":")
	return "localhost:" + port
}

func connection(srv *emulator.ServiceBus, k emulator.Key) string {
	return fmt.Sprintf("Endpoint=sb://%s/;SharedAccessKeyName=%s;SharedAccessKey=%s", address(srv), k.Name, k.Secret)
}
