package eventhub

import "testing"

// The namespaces of sovereign clouds are addressed as they are.
func TestSovereignClouds(t *testing.T) {
	for _, host := range []string{"contoso.servicebus.chinacloudapi.cn", "contoso.servicebus.usgovcloudapi.net"} {
		s, err := New("Endpoint=sb://"+host+"/;SharedAccessKeyName=n;SharedAccessKey=k", hubName, nil)
		if err != nil {
			t.Fatal(err)
		}
		if s.Group().Namespace != host || s.broker.address() != host+":5671" {
			t.Errorf("namespace %s is at %s, want %s", s.Group().Namespace, s.broker.address(), host)
		}
	}
}
