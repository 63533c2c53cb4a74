package published

import "testing"

// FuzzMessages: what anybody can put into a queue or a table is read or refused.
func FuzzMessages(f *testing.F) {
	for _, text := range []string{
		`{"ResourceName":"r","Name":"m","Value":{"Time":"2017-07-17T10:00:00.1234567+02:00","Value":7}}`, `{"ResourceName":"r","Type":1}`,
		`{"History":[{"Time":"0001-01-01T00:00:00","Value":1}],"LastScalingActionTime":"2017-07-17T10:00:00Z"}`, `{"resource":"r"}`, `[]`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if m, err := ReadMetric([]byte(text)); err == nil && m == nil {
			t.Error("neither a metric nor an error")
		}
		if a, err := ReadAction([]byte(text)); err == nil && a.Step != 1 && a.Step != -1 {
			t.Errorf("a step of %d", a.Step)
		}
		if s, err := ReadState(text); err == nil && s == nil {
			t.Error("neither a state nor an error")
		}
		if Is([]byte(text)) && Is([]byte(`{"resource":"r"}`)) {
			t.Error("Sluice's own message is taken for a published one")
		}
	})
}
