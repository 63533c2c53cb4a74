package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// checked returns the problems of files, by path.
func checked(t *testing.T, exceptions map[name]string, files map[string]string) []string {
	t.Helper()
	p := newProject()
	for file, source := range files {
		if err := p.add(file, []byte(source)); err != nil {
			t.Fatal(err)
		}
	}
	return p.check(exceptions)
}

// one makes a test file of a body, with all imports that it may need.
func one(body string) map[string]string {
	return map[string]string{"shop/shop_test.go": `package shop
import ("math/rand/v2"; "os"; "os/exec"; "testing"; "testing/synctest"; "time"; "` + module + `/internal/proof/need")
` + body}
}

func TestFindings(t *testing.T) {
	for body, want := range map[string]string{
		"func TestA(t *testing.T) { time.Sleep(1) }":                                                                                                      "shop/shop_test.go:3: TestA sleeps: begin it with need.RealTime(t)",
		"func TestA(t *testing.T) { <-time.After(2 * time.Millisecond) }":                                                                                 "TestA sleeps",
		"func FuzzA(f *testing.F) { time.Sleep(1) }":                                                                                                      "FuzzA sleeps",
		"func TestA(t *testing.T) { wait() }; func wait() { time.Sleep(1) }":                                                                              "TestA sleeps",
		"func TestA(t *testing.T) { table[0]() }; var table = []func(){wait}; func wait() { pause() }\nfunc pause() { time.Sleep(1) }":                    ":4: TestA sleeps",
		"func TestA(t *testing.T) { new(w).wait() }; type w int; func (w) wait() { time.Sleep(1) }":                                                       "TestA sleeps",
		"func TestA(t *testing.T) { made().wait() }; func made() *w { return nil }; type w int; func (*w) wait() { time.Sleep(1) }":                       "TestA sleeps",
		"func TestA(t *testing.T) { made().w.wait() }; func made() v { return v{} }; type v struct{ w w }; type w int; func (w) wait() { time.Sleep(1) }": "TestA sleeps",
		"func TestA(t *testing.T) { if time.Since(began) > time.Second { t.Fail() } }":                                                                    "TestA compares elapsed time",
		"func TestA(t *testing.T) { took := time.Since(began); ok := 5 >= took.Seconds(); _ = ok }":                                                       "TestA compares elapsed time",
		"func TestA(t *testing.T) { err, took := f(), time.Now().Sub(began); _, _ = took < limit, err }":                                                  "TestA compares elapsed time",
		"func TestA(t *testing.T) { now := time.Now(); most = max(most, now.Sub(last)) }":                                                                 "TestA compares elapsed time",
		"func TestA(t *testing.T) { longest = max(longest, time.Since(began)) }":                                                                          "TestA compares elapsed time",
		"func TestA(t *testing.T) { exec.Command(os.Args[0]) }":                                                                                           "TestA starts a process",
		"func TestA(t *testing.T) { exec.CommandContext(t.Context(), `ls`) }":                                                                             "TestA starts a process",
		"func TestA(t *testing.T) { os.StartProcess(`ls`, nil, nil) }":                                                                                    "TestA starts a process",
		"func TestA(t *testing.T) { need.Rand(t); need.Seed(t); need.Verdict(t); time.Sleep(1) }":                                                         "TestA sleeps",
		"func TestA(t *testing.T) { need.RealTime(t) }; func helper() int { return rand.IntN(5) }":                                                        "shop/shop_test.go:3: rand.IntN draws from a seed that differs in each run: use need.Rand(t)",
		"var r = rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))":                                                                                 "the clock is the seed",
		"func TestA(t *testing.T) { seed := time.Now().UnixNano() / 1000; _ = seed }":                                                                     "the clock is the seed",
	} {
		if problems := checked(t, nil, one(body)); len(problems) != 1 || !strings.Contains(problems[0], want) {
			t.Errorf("%s:\nwant %q, got %q", body, want, problems)
		}
	}
}

func TestNoFindings(t *testing.T) {
	for _, body := range []string{
		"func TestA(t *testing.T) { need.RealTime(t); time.Sleep(1) }",
		"func TestA(t *testing.T) { start(t); time.Sleep(1) }; func start(t *testing.T) { need.Kafka(t) }",
		"func TestA(t *testing.T) { synctest.Test(t, func(t *testing.T) { time.Sleep(1) }) }",
		"func TestA(t *testing.T) { bubble(t, func() { time.Sleep(1) }) }; func bubble(t *testing.T, f func()) { synctest.Test(t, nil) }",
		"func TestA(t *testing.T) { new(v).wait() }; type v int; type w int; func (w) wait() { time.Sleep(1) }", // of another type
		"func TestA(t *testing.T) { wait() }; type w int; func (w) wait() { time.Sleep(1) }",                    // a function of another package
		"func TestA(t *testing.T) { if time.Since(began) > 2*time.Minute { t.Fail() } }",
		"func TestA(t *testing.T) { select { case <-time.After(time.Second): case <-ended: } }",
		"func TestA(t *testing.T) { <-time.After(time.Millisecond); time.Sleep(time.Millisecond) }",
		"func TestA(t *testing.T) { n, took := f(), time.Since(began); t.Log(n > 5, took) }",
		"func TestA(t *testing.T) { t.Log(time.Since(began)); d := at.Sub(before); _ = d > 0 }",
		"func TestMain(m *testing.M) { exec.Command(`ls`) }; func Testing() { time.Sleep(1) }; func BenchmarkA(b *testing.B) { time.Sleep(1) }",
		"func TestA(t *testing.T) { r := rand.New(rand.NewPCG(1, 2)); r.IntN(5); id := time.Now().UnixNano(); _ = id }",
	} {
		if problems := checked(t, nil, one(body)); len(problems) > 0 {
			t.Errorf("%s:\ngot %q", body, problems)
		}
	}
}

// TestOtherPackages: a helper of another package counts if it takes a testing.TB, in both
// directions.
func TestOtherPackages(t *testing.T) {
	const test = `package shop
import ("testing"; "time"; "` + module + `/internal/proof/shoptest")
func TestA(t *testing.T) { shoptest.New(t); %s }`
	const helper = `package shoptest
import ("testing"; "time"; "` + module + `/internal/proof/need")
func New(t testing.TB) { %s }
func Sleep() { time.Sleep(1) }`
	for _, c := range []struct{ test, helper, want string }{
		{"", "time.Sleep(1)", "internal/proof/shoptest/shop.go:3: TestA sleeps"},
		{"time.Sleep(1)", "need.Postgres(t)", ""},
		{"time.Sleep(1)", "", "shop/shop_test.go:3: TestA sleeps"},
		{"shoptest.Sleep()", "", ""}, // it takes no testing.TB: of the product, or in a bubble
	} {
		problems := checked(t, nil, map[string]string{
			"shop/shop_test.go":               fmt.Sprintf(test, c.test),
			"internal/proof/shoptest/shop.go": fmt.Sprintf(helper, c.helper),
		})
		if c.want == "" && len(problems) > 0 || c.want != "" && (len(problems) != 1 || !strings.Contains(problems[0], c.want)) {
			t.Errorf("%+v: got %q", c, problems)
		}
	}
}

// TestNeedDrawsTheSeed: package need is where the clock may be a seed.
func TestNeedDrawsTheSeed(t *testing.T) {
	const source = "package need; import (`time`; `testing`); func Seed(t testing.TB) { seed := time.Now().UnixNano() }"
	if problems := checked(t, nil, map[string]string{"internal/proof/need/need.go": strings.ReplaceAll(source, "`", `"`)}); len(problems) > 0 {
		t.Errorf("got %q", problems)
	}
}

// TestExceptions: an exception excuses a function or method, and must be needed.
func TestExceptions(t *testing.T) {
	files := one("func TestA(t *testing.T) { wait(); new(w).wait() }; func wait() { time.Sleep(1) }; type w int; func (w) wait() { time.Sleep(1) }")
	excused := map[name]string{{"shop", "wait"}: "reason", {"shop", ".wait"}: "reason"}
	if problems := checked(t, excused, files); len(problems) > 0 {
		t.Errorf("got %q", problems)
	}
	excused[name{"shop", "gone"}] = "reason"
	if problems := checked(t, excused, files); len(problems) != 1 || !strings.Contains(problems[0], "the exception gone is not needed") {
		t.Errorf("got %q", problems)
	}
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	if _, err := run(dir); err == nil || !strings.Contains(err.Error(), "go.work") {
		t.Errorf("outside of a repository: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go.work"), []byte("use (\n\t.\n)\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := run(dir); err == nil || !strings.Contains(err.Error(), "no tests below") {
		t.Errorf("without tests: %v", err)
	}
	for file, source := range map[string]string{
		"other/go.mod":               "module other",
		"other/bad_test.go":          "no Go, in a module that go.work does not name",
		"shop/shop_test.go":          "package shop; func TestA(t *testing.T) { new(thing) }",
		"shop/testdata/bad_test.go":  "no Go",
		"shop/.hidden/bad_test.go":   "no Go",
		"node_modules/x/bad_test.go": "no Go",
	} {
		file = filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if problems, err := run(dir); err != nil || len(problems) != len(exceptions) { // none of which is needed here
		t.Errorf("got %v, %q", err, problems)
	}
	if err := os.WriteFile(filepath.Join(dir, "bad_test.go"), []byte("no Go"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := run(dir); err == nil || !strings.Contains(err.Error(), "bad_test.go") {
		t.Errorf("a file that is no Go: %v", err)
	}
}
