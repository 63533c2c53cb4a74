package azurecheckpoints

import (
	"testing"

	"github.com/sluice-go/sluice"
)

// What the older processors wrote, or may have.
func TestDecode(t *testing.T) {
	for content, want := range map[string]struct {
		sequence int64 // -2: nothing is said
		offset   string
	}{
		`{"Offset":"4294967296","SequenceNumber":41,"PartitionId":"1","Owner":"host","Token":"t","Epoch":3}`:          {41, "4294967296"},
		`{"partitionId":"1","owner":"h","token":"t","epoch":1528209623048,"sequenceNumber":41,"offset":"4294967296"}`: {41, "4294967296"},
		`{"offset":4294967296,"sequenceNumber":41}`:                                                                   {41, "4294967296"},
		`{"Offset":"0","SequenceNumber":0,"PartitionId":"0"}`:                                                         {0, "0"},
		`{"Offset":"","SequenceNumber":0,"PartitionId":"0","Owner":"","Token":"","Epoch":0}`:                          {-2, ""},
		`{"Offset":null,"SequenceNumber":0,"Epoch":1}`:                                                                {-2, ""},
		`{"partitionId":"0","owner":"h","epoch":164,"sequenceNumber":0,"token":"t"}`:                                  {-2, ""},
		`{"SequenceNumber":7}`:                 {7, ""},
		`{"Offset":"77"}`:                      {-1, "77"},
		`{"Offset":"77","SequenceNumber":-1}`:  {-1, "77"},
		`{"Offset":"77","SequenceNumber":"x"}`: {-2, ""},
		`{}`:                                   {-2, ""},
		`[1]`:                                  {-2, ""},
		`<xml/>`:                               {-2, ""},
		``:                                     {-2, ""},
	} {
		c := Checkpoint{Sequence: -1}
		there, err := c.decode([]byte(content))
		if err != nil || there != (want.sequence > -2) || there && (c.Sequence != want.sequence || c.Offset != want.offset) {
			t.Errorf("%s: %v, %+v, %v", content, there, c, err)
		}
	}
}

// What the current SDKs write.
func TestTake(t *testing.T) {
	for name, c := range map[string]struct {
		metadata map[string]string
		sequence int64 // -2: nothing is said; -3: an error
		offset   string
	}{
		"both":                   {map[string]string{"sequencenumber": "41", "offset": "4294967296"}, 41, "4294967296"},
		"sequence number alone":  {map[string]string{"sequencenumber": "41", "offset": "", "clientidentifier": "x"}, 41, ""},
		"offset alone":           {map[string]string{"sequencenumber": "", "offset": "3:77:1"}, -1, "3:77:1"},
		"placeholder":            {map[string]string{"sequencenumber": "41", "offset": "no offset"}, 41, ""},
		"placeholder alone":      {map[string]string{"offset": "no offset"}, -2, ""},
		".NET's smallest number": {map[string]string{"sequencenumber": "-9223372036854775808", "offset": "77"}, -1, "77"},
		"nothing":                {nil, -2, ""},
		"something else":         {map[string]string{"sequencenumber": "many"}, -3, ""},
		"too large":              {map[string]string{"sequencenumber": "9223372036854775808"}, -3, ""},
	} {
		got := Checkpoint{Sequence: -1}
		there, err := got.take(c.metadata)
		if there != (c.sequence > -2) || (err != nil) != (c.sequence == -3) || there && (got.Sequence != c.sequence || got.Offset != c.offset) {
			t.Errorf("%s: %v, %+v, %v", name, there, got, err)
		}
	}
}

func TestUnder(t *testing.T) {
	folder := []string{"ns.servicebus.windows.net", "Flights", "$Default"}
	for name, want := range map[string]string{
		"ns.servicebus.windows.net/flights/$default/0":            "0",
		"NS.servicebus.windows.net/Flights/$Default/x":            "x",
		"ns.servicebus.windows.net/flights/$default/":             "",
		"ns.servicebus.windows.net/flights/$default":              "",
		"a/ns.servicebus.windows.net/flights/$d/0":                "",
		"ns.servicebus.windows.net/flights/$default/checkpoint/0": "",
	} {
		if got, ok := under(name, folder); got != want || ok != (want != "") {
			t.Errorf("%s: %q, %v", name, got, ok)
		}
	}
	blobs := []blob{{name: "p/a/b/c/checkpoint/0"}, {name: "p/a/b/c/checkpoint/1"}, {name: "p/N/T/G/checkpoint/0"}, {name: "p/x"}}
	if got := others(blobs, "p/", sluice.Group{Namespace: "n", Topic: "t", Name: "g"}); len(got) != 1 || got[0] != "a/b/c" {
		t.Errorf("others are %q", got)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"Offset":"4294967296","SequenceNumber":41,"PartitionId":"1","Epoch":3}`))
	f.Add([]byte(`{"offset":1e400,"sequenceNumber":1e3}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		c := Checkpoint{Sequence: -1}
		there, err := c.decode(content)
		if there && (err != nil || c.Sequence < 0 && c.Offset == "" || c.Sequence < -1) {
			t.Fatalf("%q: %+v, %v", content, c, err)
		}
	})
}
