package eventhub

import (
	"fmt"
	"strings"
	"testing"
)

const (
	canary = "Q2FuYXJ5S2V5VGhhdE11c3ROZXZlckJlU2Vlbg=="
	good   = "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=reader;SharedAccessKey=" + canary
)

func TestConnectionString(t *testing.T) {
	for text, want := range map[string]struct{ address, hostname, hub string }{
		good:                         {"contoso.servicebus.windows.net:5671", "contoso.servicebus.windows.net", ""},
		good + ";":                   {"contoso.servicebus.windows.net:5671", "contoso.servicebus.windows.net", ""},
		" " + good + "\n":            {"contoso.servicebus.windows.net:5671", "contoso.servicebus.windows.net", ""},
		good + ";EntityPath=flights": {"contoso.servicebus.windows.net:5671", "contoso.servicebus.windows.net", "flights"},
		good + ";TransportType=AmqpWebSockets;OperationTimeout=00:01:00":                                 {"contoso.servicebus.windows.net:5671", "contoso.servicebus.windows.net", ""},
		"endpoint=sb://localhost;sharedaccesskeyname=a;SHAREDACCESSKEY=b=c;UseDevelopmentEmulator=true;": {"localhost:5672", "localhost", ""},
		"Endpoint=sb://[::1]:6000/;SharedAccessSignature=SharedAccessSignature sr=x&sig=y":               {"[::1]:6000", "::1", ""},
		"Endpoint=sb://LOCALHOST:5999;SharedAccessKeyName=a;SharedAccessKey=b":                           {"LOCALHOST:5999", "LOCALHOST", ""},
	} {
		ep, err := parseConnectionString(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if ep.address() != want.address || ep.hostname() != want.hostname || ep.entity != want.hub {
			t.Errorf("%q: got %s, %s, hub %q", text, ep.address(), ep.hostname(), ep.entity)
		}
		again, err := parseConnectionString(ep.connectionString())
		ep.entity = ""
		if err != nil || again != ep {
			t.Errorf("%q: became %q, which is %v, %v", text, ep.connectionString(), again, err)
		}
	}
}

// malformed connection strings, with a word that the error must have.
var malformed = map[string]string{
	"":               "empty",
	canary:           "part 1",
	`"` + good + `"`: "is in quotation marks: write it without them",
	"'" + good + "'": "is in quotation marks",
	"“" + good + "”": "is in quotation marks",
	"HostName=contoso.azure-devices.net;SharedAccessKeyName=iothubowner;SharedAccessKey=" + canary: "is that of an IoT hub (HostName=…): give the Event Hub-compatible endpoint",
	"HostName=contoso.azure-devices.net;DeviceId=dev1;SharedAccessKey=" + canary:                   "is that of a device of IoT Hub",
	"AccountEndpoint=https://contoso.documents.azure.com:443/;AccountKey=" + canary:                "is that of a Cosmos DB account",
	"DefaultEndpointsProtocol=https;AccountName=contoso;AccountKey=" + canary:                      "is that of a storage account",
	good + ";TransportType=Amqp;TransportType=Amqp":                                                "TransportType is there twice",
	";;;":     "no Endpoint",
	"nothing": "part 1",
	"SharedAccessKeyName=reader;SharedAccessKey=" + canary:                      "Endpoint",
	"Endpoint=;SharedAccessKeyName=reader;SharedAccessKey=" + canary:            "Endpoint is empty",
	"Endpoint=sb://contoso.example;SharedAccessKey=" + canary:                   "no SharedAccessKeyName",
	"Endpoint=sb://contoso.example;SharedAccessKeyName=reader":                  "no SharedAccessKey:",
	"Endpoint=sb://contoso.example;SharedAccessKeyName=reader;" + canary:        "part 3",
	"Endpoint=sb://contoso.example;SharedAccessKeyName=reader;Key=" + canary:    "part 3",
	"Endpoint=sb://contoso.example;SharedAccessKeyName=reader;SharedAccessKey=": "SharedAccessKey is empty",
	"Endpoint=sb://contoso.example;":                                            "no SharedAccessKeyName and no SharedAccessKey",
	good + ";SharedAccessKey=" + canary:                                         "twice",
	good + ";SharedAccessSignature=" + canary:                                   "both",
	good + ";EntityPath=":                                                                        "EntityPath is empty",
	good + ";EntityPath=a/b":                                                                     "EntityPath",
	good + ";UseDevelopmentEmulator=" + canary:                                                   "neither true nor false",
	good + "\nmore":                                                                              "line break",
	good + strings.Repeat("x", maxConnectionString):                                              "bytes long",
	strings.Replace(good, "sb://", "https://", 1):                                                "Endpoint",
	strings.Replace(good, "sb://", "", 1):                                                        "Endpoint",
	strings.Replace(good, "sb://", "sb://"+canary+"@", 1):                                        "Endpoint",
	strings.Replace(good, "windows.net/", "windows.net/"+canary, 1):                              "Endpoint",
	strings.Replace(good, "windows.net/", "windows.net?"+canary, 1):                              "Endpoint",
	strings.Replace(good, "windows.net/", "windows.net:0/", 1):                                   "port",
	strings.Replace(good, "windows.net/", "windows.net:/", 1):                                    "port",
	strings.Replace(good, "windows.net/", "windows.net:70000/", 1):                               "port",
	strings.Replace(good, "contoso", "con toso", 1):                                              "Endpoint",
	strings.Replace(good, "sb://contoso.servicebus.windows.net/", "sb://%zz"+canary, 1):          "Endpoint",
	strings.Replace(good, "sb://contoso.servicebus.windows.net/", "sb://"+canary[:30]+":key", 1): "Endpoint",
}

func TestMalformedConnectionString(t *testing.T) {
	for text, want := range malformed {
		s, err := New(text, "flights", nil)
		if err == nil {
			t.Errorf("%q was taken for %s", text, s.broker.host)
			continue
		}
		checkMessage(t, err.Error(), want)
	}
}

// checkMessage checks a message that people see.
func checkMessage(t *testing.T, text, want string) {
	t.Helper()
	if !strings.Contains(text, want) {
		t.Errorf("%q doesn't say %q", text, want)
	}
	if strings.Contains(text, canary) || strings.Contains(text, canary[:30]) {
		t.Errorf("%q tells the key", text)
	}
	if strings.Contains(text, "\n") || len(text) > 500 {
		t.Errorf("%q is not one line", text)
	}
}

func TestNewChecks(t *testing.T) {
	for _, c := range []struct {
		text, hub string
		cfg       *Config
		want      string
	}{
		{good, "", nil, "no hub"},
		{good + ";EntityPath=flights", "weather", nil, "hub weather: the connection string is for the hub flights"},
		{good, "a/b", nil, "not a name"},
		{good, "flights", &Config{ConsumerGroup: "a b"}, "consumer group"},
		{good, "flights", &Config{Owner: strings.Repeat("x", 65)}, "owner of 65"},
		{good, "flights", &Config{Prefetch: 5001}, "prefetch of 5001"},
		{good, "flights", &Config{PrefetchBytes: -1}, "prefetch of -1 bytes"},
		{good, "flights", &Config{Timeout: -1}, "timeout"},
		{good, "flights", &Config{Undecodable: "drop"}, `undecodable "drop": give "halt" or "deadletter"`},
		{good, "flights", &Config{Undecodable: ParkUndecodable, Receiver: SDKReceiver}, `undecodable "deadletter" needs receiver "own": the SDK's returns nothing of such an event`},
	} {
		if _, err := New(c.text, c.hub, c.cfg); err == nil {
			t.Errorf("%q, %q, %+v: no error", c.text, c.hub, c.cfg)
		} else {
			checkMessage(t, err.Error(), c.want)
		}
	}
	for _, namespace := range []string{"", "sb://contoso.example", "contoso.example/", "a b", "contoso.example:x"} {
		if _, err := NewWithCredential(namespace, "flights", static("token"), nil); err == nil {
			t.Errorf("namespace %q: no error", namespace)
		}
	}
	if _, err := NewWithCredential("contoso.example", "flights", nil, nil); err == nil {
		t.Error("no credential: no error")
	}
}

func TestEntityPathNamesTheHub(t *testing.T) {
	for _, hub := range []string{"", "flights"} {
		s, err := New(good+";EntityPath=flights", hub, nil)
		if err != nil {
			t.Fatal(err)
		}
		g := s.Group()
		if g.Topic != "flights" || g.Namespace != "contoso.servicebus.windows.net" || g.Name != "$Default" {
			t.Errorf("group %v", g)
		}
	}
}

// A printed source does not show the key.
func TestFormat(t *testing.T) {
	s, err := New(good, "flights", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d"} {
		if got := fmt.Sprintf(verb, s); got != "contoso.servicebus.windows.net/flights/$Default" {
			t.Errorf("%s: %s", verb, got)
		}
	}
}

func FuzzConnectionString(f *testing.F) {
	f.Add(good)
	for text := range malformed {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ep, err := parseConnectionString(text)
		if err != nil {
			return
		}
		again, err := parseConnectionString(ep.connectionString())
		ep.entity = ""
		if err != nil || again != ep {
			t.Errorf("%q became %q, which is %v, %v", text, ep.connectionString(), again, err)
		}
	})
}
