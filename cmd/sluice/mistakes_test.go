package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/emulator"
	"github.com/sluice-go/sluice/internal/proof/need"
)

const secret = "dG9wc2VjcmV0a2V5" // a key that no message may tell

func TestWhatIsWrongIsOneClearLine(t *testing.T) {
	t.Parallel()
	srv, err := emulator.Start([]emulator.Hub{{Name: "flights", Partitions: 1}}, &emulator.Config{Keys: []emulator.Key{{Name: "app", Secret: secret}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Close() })
	right := srv.ConnectionString()
	wrong := strings.Replace(right, secret, "bm90IHRoaXMgb25l", 1)
	const closed = "127.0.0.1:1" // nobody listens there
	absent := "Endpoint=sb://" + closed + ";SharedAccessKeyName=app;SharedAccessKey=" + secret + ";UseDevelopmentEmulator=true"
	database := databases["sqlite"](t)
	existing := existingSQLite(t)
	empty := databases["sqlite"](t)
	if _, err := openDatabase(t, empty).Exec("CREATE TABLE others (n INTEGER)"); err != nil {
		t.Fatal(err)
	}
	otherHub := changed(t, "hub: flights", "hub: flihgts")

	failsCheck(t, environment(right, database), otherHub, "flights.yaml:", "not found: check the names")
	failsCheck(t, environment(right, "postgres://app:"+secret+"@"+closed+"/flights"), example(t), "flights.yaml:", "database", closed)
	for _, c := range []struct {
		name string
		env  []string
		args []string
		want []string // parts of the line
	}{
		{"unknown key", environment(right, database), []string{"run", changed(t, "consumer_group:", "consumer_grup:")}, []string{"flights.yaml:", "consumer_grup", "did you mean consumer_group"}},
		{"bad value", environment(right, database, "PARTITIONS=0"), []string{"run", example(t)}, []string{"flights.yaml:", "partitions"}},
		{"variable not set", []string{"EVENTHUB_CONNECTION_STRING=" + right}, []string{"run", example(t)}, []string{"flights.yaml:", "DATABASE_URL"}},
		{"no such file", nil, []string{"run", "nowhere.yaml"}, []string{"nowhere.yaml: cannot be read: no such file or directory: check the path, or write a new file: sluice init nowhere.yaml"}},
		{"no directory for a new file", nil, []string{"init", "nowhere/flights.yaml"}, []string{"nowhere/flights.yaml: no such file or directory: make the directory first"}},
		{"no such file of an autoscaler", nil, []string{"autoscale", "run", "nowhere.yaml"}, []string{"nowhere.yaml: cannot be read: no such file or directory: check the path; docs/autoscale.md has examples"}},
		{"no such file to record for", nil, []string{"autoscale", "record", "nowhere.yaml", "--out", "o.csv"}, []string{"nowhere.yaml: cannot be read: ", "docs/autoscale.md"}},
		{"no such file to log", nil, []string{"autoscale", "log", "nowhere.yaml"}, []string{"nowhere.yaml: cannot be read: ", "docs/autoscale.md"}},
		{"no such recording", nil, []string{"autoscale", "backtest", "--rules", "r.yaml", "--metrics", "nowhere.csv"}, []string{"nowhere.csv: cannot be read: ", "check the path; sluice autoscale record writes such a file"}},
		{"no such file of consumer groups", nil, []string{"autoscale", "keda", "nowhere.yaml", "--listen", "127.0.0.1:0"}, []string{"nowhere.yaml: cannot be read: ", "check the path; docs/keda.md has an example"}},
		{"no such file of dead letters", nil, []string{"deadletters", "list", "--config", "nowhere.yaml"}, []string{"nowhere.yaml: cannot be read: ", "sluice init nowhere.yaml"}},
		{"unknown hub", environment(right, database), []string{"run", otherHub}, []string{"flights.yaml:", "flihgts", "not found: check the names"}},
		{"wrong key", environment(wrong, database), []string{"run", example(t)}, []string{"flights.yaml:", "not authorised: check the key"}},
		{"unreachable hub", environment(absent, database), []string{"run", example(t)}, []string{"flights.yaml:", closed, "connection refused: check the address, and whether the server runs"}},
		{"mangled connection string", environment("Endpoint=sb://x;SharedAccessKey="+secret, database), []string{"run", example(t)}, []string{"flights.yaml:", "no SharedAccessKeyName"}},
		{"unreachable database", environment(right, "postgres://app:"+secret+"@"+closed+"/flights"), []string{"run", example(t)}, []string{"flights.yaml:", "database", closed}},
		{"impossible database", environment(right, "sqlite:/nowhere/flights.db"), []string{"run", example(t)}, []string{"flights.yaml:", "/nowhere"}},
		{"send to an unknown hub", environment(right, ""), []string{"send", "--hub", "flihgts", writeLines(t, []string{"{}"})}, []string{"flihgts", "not found"}},
		{"send with a wrong key", environment(wrong, ""), []string{"send", "--hub", "flights", writeLines(t, []string{"{}"})}, []string{"not authorised"}},
		{"send nothing", environment(right, ""), []string{"send", "--hub", "flights", "nowhere.json"}, []string{"nowhere.json: cannot be read: no such file"}},
		{"send a directory", environment(right, ""), []string{"send", "--hub", "flights", "."}, []string{".: cannot be read: it is a directory"}},
		{"send to a queue out of reach", nil, []string{"send", "--to", absent, "--queue", "orders", writeLines(t, []string{"{}"})}, []string{"queue orders: connect: ", closed, "connection refused"}},
		{"unknown dead letter", environment(right, existing), []string{"deadletters", "retry", "--config", example(t), "17"}, []string{"dead letter 17: not found"}},
		{"show an unknown dead letter", environment(right, existing), []string{"deadletters", "show", "--config", example(t), "17"}, []string{"dead letter 17: not found"}},
		{"dead letters of a database that is not there", environment(right, "sqlite:slip.db"), []string{"deadletters", "list", "--config", example(t)}, []string{"flights.yaml:", "database: the database does not exist"}},
		{"a store that is not there", nil, []string{"deadletters", "list", "--database", "sqlite:slip.db", "--namespace", "n", "--hub", "h"}, []string{"--database: the database does not exist"}},
		{"a store without tables", nil, []string{"checkpoints", "list", "--database", empty, "--namespace", "n", "--hub", "h"}, []string{"--database: the database has no table sluice_checkpoints"}},
		{"unknown partition", environment(right, database), []string{"checkpoints", "set", "--config", example(t), "--partition", "7", "--to", "latest"}, []string{"flights has no partition 7: its partitions are 0"}},
		{"address in use", nil, []string{"emulator", "serve", "--listen", srv.Addr(), "--hub", "h=1"}, []string{srv.Addr(), "address already in use: stop the program that uses it"}},
		{"address of metrics in use", environment(right, database), []string{"run", example(t), "--metrics", srv.Addr()}, []string{"--metrics " + srv.Addr(), "address already in use: choose another port"}},
		{"odd hub", nil, []string{"emulator", "serve", "--listen", "127.0.0.1:0", "--hub", "a/b=1"}, []string{"a/b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			code, out, errs := invoke(t, "", c.env, c.args...)
			if code != 1 || out != "" {
				t.Errorf("exit code %d, printed %q", code, out)
			}
			if !strings.HasPrefix(errs, "sluice: ") || strings.Count(errs, "\n") != 1 {
				t.Errorf("not one line: %s", errs)
			}
			for _, part := range c.want {
				if !strings.Contains(errs, part) {
					t.Errorf("no %q in %s", part, errs)
				}
			}
			if strings.Contains(errs, secret) {
				t.Errorf("the secret is in %s", errs)
			}
		})
	}
}

func TestMisuse(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "unread.yaml")
	for args, want := range map[string]string{
		"runn x.yaml": `sluice: unknown command "runn" for "sluice", did you mean run`,
		"run a b":     "sluice run: accepts at most 1 arg(s), received 2",
		"run --until-caught-up --within -1s x.yaml": "must be positive",
		"demo --evnts 3":                     "unknown flag: --evnts; see sluice demo --help",
		"demo --events 0":                    "must be 1 to",
		"help deadletters lst":               `sluice help: unknown command "deadletters lst"; see sluice help --help`,
		"demo x":                             "sluice demo: unknown command",
		"demo --log-format xml":              "write text or json",
		"demo --log-level loud":              "write debug, info, warn or error",
		"emulator":                           "choose one of serve",
		"emulator serve":                     "at least one --hub",
		"emulator serve --hub flights":       "write NAME=PARTITIONS",
		"emulator serve --hub h=1 --key app": "write NAME=BASE64",
		"emulator serve --hub h=1 --key app=" + secret + "!": "not base64",
		"send --hub h":                  "EVENTHUB_CONNECTION_STRING is not set",
		"send --hub h --to env:NOWHERE": "NOWHERE is not set",
		"send --to Endpoint=sb://h;SharedAccessKeyName=a;SharedAccessKey=" + secret: "the destination is missing: pass --hub NAME",
		"send --hub h --rate -1":     "must be positive",
		"deadletters":                "choose one of list, show, retry, discard",
		"deadletters lst":            `unknown command "lst": use one of list, show`,
		"deadletters list":           "name the pipeline: pass --config PIPELINE.yaml; for a program that uses the library --database or --blob, --namespace and --hub",
		"run":                        "name the pipeline: pass PIPELINE.yaml or --config PIPELINE.yaml; sluice init writes a new file",
		"check":                      "name the pipeline: pass PIPELINE.yaml or --config PIPELINE.yaml",
		"init":                       "name the file to write: pass PIPELINE.yaml",
		"init a b":                   "accepts at most 1 arg(s), received 2",
		"init x.yaml --source hub":   "--source hub: write one of eventhub, kafka",
		"autoscale run":              "name the autoscaler's file: pass CONFIG.yaml; docs/autoscale.md has examples, sluice help autoscale-file all keys",
		"autoscale run --onec x":     "unknown flag: --onec; see sluice autoscale run --help",
		"autoscale log":              "name the autoscaler's file",
		"autoscale log a b":          "accepts at most 1 arg(s), received 2",
		"autoscale record --out x":   "name the autoscaler's file",
		"autoscale record x":         "--out is needed: the file to write",
		"autoscale backtest":         "--rules and --metrics are needed: an autoscaler's file, and the CSV file that sluice autoscale record has written",
		"autoscale keda --listen :0": "name the file with the consumer groups: pass FILE.yaml; docs/keda.md has an example",
		"autoscale keda x":           "--listen is needed, such as --listen :6000",
		"deadletters list --database sqlite:x.db":                                         "--namespace and --hub are missing",
		"deadletters list --database sqlite:x.db --config " + config:                      "leave out --config and --stage",
		"deadletters list --database sqlite:x.db --blob c":                                "--database and --blob exclude each other",
		"deadletters list --hub h --config " + config:                                     "--namespace, --hub and --group go with --database or --blob",
		"checkpoints list --prefix p/ --config " + config:                                 "--prefix goes with --blob",
		"checkpoints list --database env:NOWHERE --namespace n --hub h":                   "--database env:NOWHERE: the environment variable is not set",
		"check --without-secrets --stage s " + config:                                     "--without-secrets checks all stages",
		"deadletters show --config " + config:                                             "name dead letters: pass their ids, which sluice deadletters list shows",
		"deadletters list --limit -3 --config " + config:                                  "--limit -3: must not be negative",
		"deadletters list --limit few --config " + config:                                 "--limit few: write a whole number",
		"deadletters retry --all --within soon --config " + config:                        "--within soon: write a duration such as",
		"send --hub h --rate many":                                                        "--rate many: write a number",
		"deadletters retry --config " + config:                                            "select dead letters: pass ids, --where or --all",
		"deadletters retry --all 3 --config " + config:                                    "--all excludes ids",
		"deadletters retry x --config " + config:                                          `"x" is not the id of a dead letter`,
		"deadletters retry --all --at tomorrow --config " + config:                        "--at tomorrow: write a time such as",
		"deadletters retry --all --after 1h --at 2026-01-01T00:00:00Z --config " + config: "--at and --after exclude each other",
		"deadletters discard --where status=dad --config " + config:                       `"dad" is not one of dead, retry, discarded`,
		"checkpoints set --config " + config + " --to latest":                             "choose partitions: pass --partition P or --all",
		"checkpoints set --config " + config + " --to latest --all --partition 1":         "choose partitions: pass --partition P or --all",
		"checkpoints set --config " + config + " --all":                                   "--to is missing: pass earliest",
		"checkpoints set --config " + config + " --all --to yesterday":                    `start "yesterday": not understood`,
	} {
		code, out, errs := invoke(t, "", nil, strings.Fields(args)...)
		if code != 2 || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, want) || strings.Contains(errs, secret) {
			t.Errorf("sluice %s: exit code %d, printed %q, want %q in %s", args, code, out, want, errs)
		}
	}
	if _, err := os.Stat(config); err == nil {
		t.Error("a misused command has written a file")
	}
}

func TestResultsThatCannotBeWritten(t *testing.T) {
	need.RealTime(t)
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	var errs strings.Builder
	cmd := exec.Command(program.Path(t), "check", example(t))
	cmd.Env = environment("Endpoint=sb://h;SharedAccessKeyName=a;SharedAccessKey="+secret, "sqlite:flights.db")
	cmd.Stdout, cmd.Stderr = full, &errs
	_ = cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != 3 || errs.String() != "sluice: write /dev/stdout: no space left on device\n" {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}

func TestVersionAndHelp(t *testing.T) {
	t.Parallel()
	version := must(t, "", nil, "version")
	if !strings.HasPrefix(version, "sluice ") || !strings.Contains(version, " go1.") {
		t.Errorf("version: %s", version)
	}
	if flag := must(t, "", nil, "--version"); flag != version {
		t.Errorf("--version prints %q, version %q", flag, version)
	}
	if out := must(t, "", nil, "--help"); !strings.Contains(out, "deadletters") {
		t.Errorf("help: %s", out)
	}
}
