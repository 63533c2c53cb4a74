package interop

import (
	"context"
	"encoding/xml"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/proof/need"
)

// pythonSuitePatience is how long the tests of a client for Python may take.
const pythonSuitePatience = 40 * time.Minute

// PythonSuite is the live and unit tests of a client for Python, unmodified. They come with the
// source that the client's package is published with.
type PythonSuite struct {
	// Dir is the directory of the tests, below [InstalledPython].
	Dir string
	// Tests are the files and directories of tests, below Dir.
	Tests []string
	// Processes is how many tests run at a time. Default 1.
	Processes string
	// Timeout is how long a test may take. Default 2 minutes.
	Timeout time.Duration
	// Shim is a directory of modules that take precedence over installed ones.
	Shim string
	// Expected are the tests that fail, with the reason: "test_file::test".
	Expected map[string]string
	// Sometimes are those of them that may pass.
	Sometimes []string
	// AtLeast is how many tests must pass.
	AtLeast int
	// Variables are the environment variables by which the tests find the servers.
	Variables []string
}

// InstalledPython is the directory of the clients for Python with their tests. The test skips or
// fails where they are not installed.
func InstalledPython(t testing.TB) string {
	t.Helper()
	need.PythonSuites(t)
	return installed(t, "interop-python")
}

// Run runs the tests, and compares the results with the expected ones.
func (s *PythonSuite) Run(t *testing.T) {
	t.Helper()
	dir := InstalledPython(t)
	shim, err := filepath.Abs(s.Shim)
	if err != nil {
		t.Fatal(err)
	}
	results := filepath.Join(t.TempDir(), "results.xml")
	ctx, cancel := context.WithTimeout(t.Context(), pythonSuitePatience)
	defer cancel()
	timeout := s.Timeout
	if timeout == 0 {
		timeout = 2 * time.Minute
	}
	args := []string{"-m", "pytest", "-q", "-p", "devtools_testutils.fixtures", "-p", "no:cacheprovider", "-o", "addopts=", "-o", "junit_family=xunit1", "-o", "asyncio_mode=auto",
		"--timeout", strconv.Itoa(int(timeout.Seconds())), "--tb=short", "--junitxml", results}
	if s.Processes != "" {
		args = append(args, "-n", s.Processes)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(dir, Python), append(args, s.Tests...)...)
	cmd.Dir = filepath.Join(dir, s.Dir)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+shim, "PYTHONDONTWRITEBYTECODE=1")
	cmd.Env = append(cmd.Env, s.Variables...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("%v, %v\n%s", err, ctx.Err(), tail(string(out)))
	}
	j := &judge{t: t, expected: s.Expected, sometimes: s.Sometimes, results: make(map[string]string), output: make(map[string]*strings.Builder)}
	if err := j.readJUnit(results); err != nil {
		t.Fatalf("%v\n%s", err, tail(string(out)))
	}
	j.conclude(s.AtLeast)
}

// readJUnit reads the file that pytest writes.
func (j *judge) readJUnit(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	type outcome struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
	var report struct {
		Cases []struct {
			Class   string   `xml:"classname,attr"` // livetest.test_send.TestClass
			Name    string   `xml:"name,attr"`
			Seconds float64  `xml:"time,attr"`
			Failure *outcome `xml:"failure"`
			Error   *outcome `xml:"error"`
			Skipped *outcome `xml:"skipped"`
		} `xml:"testsuite>testcase"`
	}
	if err := xml.Unmarshal(text, &report); err != nil {
		return err
	}
	for _, c := range report.Cases {
		name := c.Name
		for part := range strings.SplitSeq(c.Class, ".") {
			if strings.HasPrefix(part, "test_") {
				name = part + "::" + c.Name
			}
		}
		result, text := "pass", ""
		for _, o := range []*outcome{c.Failure, c.Error} {
			if o != nil {
				result, text = "fail", text+o.Message+"\n"+o.Text
			}
		}
		if c.Skipped != nil {
			result, text = "skip", c.Skipped.Message
		}
		if j.results[name] != "fail" { // a test's teardown is a case of its own
			j.results[name] = result
			j.took(name, c.Seconds)
			j.output[name] = &strings.Builder{}
			j.output[name].WriteString(text)
		}
	}
	return nil
}
