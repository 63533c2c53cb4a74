package prometheus

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// stand is a stand-in for Prometheus that answers as its documentation says.
func stand(t *testing.T, answers map[string]string) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/prom/api/v1/query" || r.Header.Get("X-Scope-Orgid") != "tenant" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		a, known := answers[r.URL.Query().Get("query")]
		if !known {
			w.WriteHeader(http.StatusBadRequest)
			a = `{"status":"error","errorType":"bad_data","error":"invalid parameter \"query\": 1:4: parse error"}`
		}
		fmt.Fprint(w, a)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/prom/"
}

func success(kind, result string) string {
	return fmt.Sprintf(`{"status":"success","data":{"resultType":%q,"result":%s}}`, kind, result)
}

func TestQueries(t *testing.T) {
	at := stand(t, map[string]string{
		"scalar(x)":       success("scalar", `[1435781451.781,"42.5"]`),
		"sum(x{a=\"b\"})": success("vector", `[{"metric":{},"value":[1435781451.781,"1e3"]}]`),
		"none":            success("vector", `[]`),
		"two":             success("vector", `[{"metric":{"a":"1"},"value":[1,"1"]},{"metric":{"a":"2"},"value":[1,"2"]}]`),
		"x[5m]":           success("matrix", `[]`),
		"'x'":             success("string", `[1,"x"]`),
		"0/0":             success("scalar", `[1,"NaN"]`),
		"1/0":             success("scalar", `[1,"+Inf"]`),
		"odd sample":      success("scalar", `[1,2,3]`),
		"number":          success("scalar", `[1,2]`),
		"odd":             `{"status":"success","data":7}`,
		"failed":          `{"status":"error","errorType":"execution","error":"query timed out"}`,
	})
	for _, c := range []struct{ query, want string }{
		{"scalar(x)", "42.5"},
		{`sum(x{a="b"})`, "1000"},
		{"none", "returns no series: write `… or vector(0)`"},
		{"two", "returns 2 series"},
		{"x[5m]", `returns a "matrix"`},
		{"'x'", `returns a "string"`},
		{"0/0", `"NaN", which is not a finite number`},
		{"1/0", `"+Inf", which is not a finite number`},
		{"odd sample", "not a time and a value"},
		{"number", "value is not a string"},
		{"odd", "not one of the Prometheus API"},
		{"failed", "query timed out"},
		{"sum(", "HTTP 400: bad_data: invalid parameter"},
	} {
		s, err := New(at, c.query, &Config{Header: http.Header{"X-Scope-OrgID": {"tenant"}}})
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Read(t.Context())
		got := fmt.Sprint(r.Value)
		if err != nil {
			if got = err.Error(); !strings.HasPrefix(got, "prometheus: ") {
				t.Errorf("%s: %s does not name the source", c.query, got)
			}
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", c.query, got, c.want)
		}
	}
}

func TestMistakes(t *testing.T) {
	if _, err := New("localhost:9090", "x", nil); err == nil {
		t.Error("a URL without a scheme is taken")
	}
	if _, err := New("http://localhost:9090", " ", nil); err == nil {
		t.Error("an empty query is taken")
	}
}

func FuzzValue(f *testing.F) {
	f.Add([]byte(success("scalar", `[1,"42"]`)))
	f.Add([]byte(success("vector", `[{"value":[1,"42"]}]`)))
	f.Fuzz(func(t *testing.T, body []byte) {
		if v, err := value(body); err == nil && v != v {
			t.Errorf("%s is NaN", body)
		}
	})
}
