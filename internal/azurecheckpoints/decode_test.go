package azurecheckpoints

import (
	"strings"
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
		// Go's former SDK, and Dapr before 1.10 with it.
		`{"partitionId":"1","epoch":12,"owner":"h","checkpoint":{"offset":"4294967296","sequenceNumber":41,"enqueueTime":"2023-01-02T03:04:05Z"},"state":"available","token":"t"}`: {41, "4294967296"},
		`{"partitionId":"1","epoch":1,"owner":"h","checkpoint":{"offset":"-1","sequenceNumber":0,"enqueueTime":"0001-01-01T00:00:00Z"},"state":"leased","token":"t"}`:              {-2, ""},
		`{"partitionId":"1","checkpoint":{"offset":"@latest","sequenceNumber":0},"state":"leased"}`:                                                                                {-2, ""},
		`{"partitionID":"1","epoch":0,"owner":"","checkpoint":{"sequenceNumber":41,"enqueueTime":""},"state":"","token":""}`:                                                       {41, ""},
		`{"partitionId":"1","epoch":0,"owner":"","checkpoint":null,"state":"","token":""}`:                                                                                         {-2, ""},
		// Python's former SDK.
		`{"partition_id":"1","owner":"h","token":"t","epoch":5,"event_processor_context":null,"offset":"4294967296","sequence_number":41}`: {41, "4294967296"},
		`{"partition_id":"1","offset":"-1","sequence_number":0,"owner":null,"token":null,"epoch":0}`:                                       {-2, ""},
		// That of another partition.
		`{"partition_id":"2","offset":"4294967296","sequence_number":41}`:            {-2, ""},
		`{"partitionId":"2","checkpoint":{"offset":"42949672","sequenceNumber":41}}`: {-2, ""},
		`{"SequenceNumber":7}`:                 {7, ""},
		`{"Offset":"77"}`:                      {-1, "77"},
		`{"Offset":"77","SequenceNumber":-1}`:  {-1, "77"},
		`{"Offset":"77","SequenceNumber":"x"}`: {-2, ""},
		`{}`:                                   {-2, ""},
		`[1]`:                                  {-2, ""},
		`<xml/>`:                               {-2, ""},
		``:                                     {-2, ""},
	} {
		c := Checkpoint{Partition: "1", Sequence: -1}
		if strings.Contains(content, `artitionId":"0"`) {
			c.Partition = "0"
		}
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
		if got, ok := nameInFolder(name, folder); got != want || ok != (want != "") {
			t.Errorf("%s: %q, %v", name, got, ok)
		}
	}
	blobs := []blob{{name: "p/a/b/c/checkpoint/0"}, {name: "p/a/b/c/checkpoint/1"}, {name: "p/N/T/G/checkpoint/0"}, {name: "p/x"}}
	if got := others(blobs, "p/", sluice.Group{Namespace: "n", Topic: "t", Name: "g"}); len(got) != 1 || got[0] != "a/b/c" {
		t.Errorf("others are %q", got)
	}
}

// TestWays: the blobs of each processor are found, and nothing else.
func TestWays(t *testing.T) {
	g := sluice.Group{Namespace: "ns.servicebus.windows.net", Topic: "flights", Name: "$Default"}
	for name, want := range map[string]int{ // the index of the way; -1: none
		"ns.servicebus.windows.net/flights/$default/checkpoint/0": 0,
		"ns.servicebus.windows.net/flights/$Default/0":            1,
		"flights/$Default/0":       2,
		"$Default/0":               3,
		"dapr-flights-$Default-0":  4,
		"dapr-Flights-$default-12": 4,
		"ns.servicebus.windows.net/flights/$Default/ownership/0": 5,
		"0":                         6,
		"dapr-flights-$Default-x":   -1,
		"dapr-flights-$Default-":    -1,
		"dapr-flights-a-$Default-0": -1,
		"x":                         -1,
		"":                          -1,
		"sluice/0/1":                -1,
	} {
		got := -1
		for i, way := range ways {
			if _, ok := way.partition(name, g); ok && got < 0 {
				got = i
			}
		}
		if got != want {
			t.Errorf("%s is found by %d, want %d", name, got, want)
		}
	}
}

// What a fixed-partition processor writes.
func TestReadOffset(t *testing.T) {
	for content, want := range map[string]string{ // "": no checkpoint; "!": an error
		"4294967296": "4294967296", "0": "0", " 77\n": "77", "-1": "", "": "!", "x": "!", "1.5": "!", "-2": "!", "99999999999999999999": "!", `{"Offset":"1"}`: "!",
	} {
		c := Checkpoint{Sequence: -1}
		there, err := c.readOffset([]byte(content))
		if want == "!" && err == nil || want != "!" && (err != nil || there != (want != "") || c.Offset != want) {
			t.Errorf("%q: %v, %q, %v", content, there, c.Offset, err)
		}
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
		if there, err := (&c).readOffset(content); there && (err != nil || c.Offset == "" || strings.Trim(c.Offset, "0123456789") != "") {
			t.Fatalf("%q: %+v, %v", content, c, err)
		}
	})
}
