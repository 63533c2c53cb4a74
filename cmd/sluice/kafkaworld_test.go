package main_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// topic is a topic of a cluster of Kafka, and the numbers of the events that were sent to it.
type topic struct {
	t       testing.TB
	name    string
	brokers string
	client  *kgo.Client
	admin   *kadm.Client

	good    []event // committed flights
	bad     []event // committed records that become dead letters
	aborted []event
}

// newTopic creates a topic.
func newTopic(t testing.TB, partitions int32, brokers []string) *topic {
	t.Helper()
	k := &topic{t: t, name: fmt.Sprintf("flights-%d", time.Now().UnixNano()), brokers: strings.Join(brokers, ",")}
	k.client = k.newClient()
	k.admin = kadm.NewClient(k.client)
	if _, err := k.admin.CreateTopic(t.Context(), partitions, 1, nil, k.name); err != nil {
		t.Fatal(err)
	}
	return k
}

func (k *topic) newClient(options ...kgo.Opt) *kgo.Client {
	k.t.Helper()
	options = append(options, kgo.SeedBrokers(strings.Split(k.brokers, ",")...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	client, err := kgo.NewClient(options...)
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(client.Close)
	return client
}

// send sends records to the partitions by turns, in a transaction, and ends it.
func (k *topic) send(client *kgo.Client, partitions int, end kgo.TransactionEndTry, bodies []string) (sent []event) {
	k.t.Helper()
	if err := client.BeginTransaction(); err != nil {
		k.t.Fatal(err)
	}
	records := make([]*kgo.Record, len(bodies))
	for i, body := range bodies {
		records[i] = &kgo.Record{Topic: k.name, Partition: int32(i % partitions), Key: fmt.Append(nil, "key-", i), Value: []byte(body)}
	}
	for _, r := range client.ProduceSync(k.t.Context(), records...) {
		if r.Err != nil {
			k.t.Fatal(r.Err)
		}
		sent = append(sent, event{strconv.Itoa(int(r.Record.Partition)), r.Record.Offset})
	}
	if err := client.EndTransaction(k.t.Context(), end); err != nil {
		k.t.Fatal(err)
	}
	return sent
}

// fill sends committed and aborted transactions, with some records that become dead letters.
func (k *topic) fill(partitions int) {
	k.t.Helper()
	producer := k.newClient(kgo.TransactionalID(k.name))
	flights := make([]string, 30)
	for round := range 5 {
		for i := range flights {
			flights[i] = fmt.Sprintf(`{"date":"2001/01/14 21:55","delay":%d,"distance":480,"origin":"SAN","destination":"SMF"}`, round*len(flights)+i)
		}
		k.good = append(k.good, k.send(producer, partitions, kgo.TryCommit, flights)...)
		k.aborted = append(k.aborted, k.send(producer, partitions, kgo.TryAbort, flights[:4])...)
	}
	k.bad = append(k.bad, k.send(producer, partitions, kgo.TryCommit, spoiled(4))...)
}

// environment is what examples/kafka.yaml reads.
func (k *topic) environment(database string, more ...string) []string {
	return append([]string{"KAFKA_BROKERS=" + k.brokers, "KAFKA_TOPIC=" + k.name, "DATABASE_URL=" + database}, more...)
}

// ends are the offsets after the last record of each partition.
func (k *topic) ends() map[string]int64 {
	k.t.Helper()
	listed, err := k.admin.ListEndOffsets(k.t.Context(), k.name)
	if err != nil || listed.Error() != nil {
		k.t.Fatal(err, listed.Error())
	}
	ends := map[string]int64{}
	listed.Each(func(o kadm.ListedOffset) { ends[strconv.Itoa(int(o.Partition))] = o.Offset })
	return ends
}

// committed are the offsets of a consumer group, by partition, with their leader epochs.
func (k *topic) committed(group string) (offsets, epochs map[string]int64) {
	k.t.Helper()
	found, err := k.admin.FetchOffsets(k.t.Context(), group)
	if err != nil {
		k.t.Fatal(err)
	}
	offsets, epochs = map[string]int64{}, map[string]int64{}
	for partition, o := range found[k.name] {
		p := strconv.Itoa(int(partition))
		offsets[p], epochs[p] = o.At, int64(o.LeaderEpoch)
	}
	return offsets, epochs
}

// kafkaExample is the pipeline that scripts use, with replacements as pairs of old and new.
func kafkaExample(t testing.TB, replacements ...string) string {
	t.Helper()
	path, err := filepath.Abs("../../examples/kafka.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(replacements) == 0 {
		return path
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(replacements); i += 2 {
		if !strings.Contains(string(text), replacements[i]) {
			t.Fatalf("the example does not contain %q", replacements[i])
		}
	}
	changed := filepath.Join(t.TempDir(), "kafka.yaml")
	if err := os.WriteFile(changed, []byte(strings.NewReplacer(replacements...).Replace(string(text))), 0o644); err != nil {
		t.Fatal(err)
	}
	return changed
}

// runFromKafka plays the commands over a topic: what was committed takes effect once, what was
// aborted never does, and the tools see it.
func runFromKafka(t *testing.T, brokers []string, url string) {
	const partitions = 3
	k := newTopic(t, partitions, brokers)
	k.fill(partitions)
	env, config := k.environment(url), kafkaExample(t, "# progress_group: flights #", "progress_group: shown-"+k.name+" #")
	db := openDatabase(t, url)

	must(t, "", env, "check", "--connect", config)
	must(t, "", env, "run", config, "--until-caught-up")
	letters, dead := deadLetters(t, env, config)
	exactlyOnce(t, slices.Concat(k.good, k.bad), rows(t, db), dead)
	if len(letters) != len(k.bad) || !strings.HasPrefix(letters[0].Key, "key-") {
		t.Errorf("dead letters %+v", letters)
	}
	ends := k.ends()
	for _, c := range checkpoints(t, env, config) {
		if c.Lag == nil || *c.Lag != 0 || *c.Position != ends[c.Partition]-1 {
			t.Errorf("partition %s is at %v, the end is %d, lag %v", c.Partition, *c.Position, ends[c.Partition], c.Lag)
		}
	}
	shown, epochs := k.committed("shown-" + k.name)
	for p, end := range ends {
		if shown[p] != end || epochs[p] < 0 {
			t.Errorf("partition %s: offset %d in leader epoch %d is published, the end is %d", p, shown[p], epochs[p], end)
		}
	}

	k.audit(env, config, 0, fmt.Sprintf("Nothing lost, nothing duplicated: %d events, %d written, %d dead letters, 0 waiting.", len(k.good)+len(k.bad), len(k.good), len(k.bad)))
	k.redrive(env, config)
	k.plantFaults(url, env, config)
	k.setBack(url, env, config)
	k.sendMore(url, env, config)
}

// audit audits the pipeline, and expects an exit code and a text.
func (k *topic) audit(env []string, config string, want int, text string) {
	k.t.Helper()
	code, out, errs := invoke(k.t, "", env, "audit", "hub", "--config", config)
	if code != want || !strings.Contains(out+errs, text) {
		k.t.Errorf("audit: exit code %d, want %d and %q in\n%s%s", code, want, text, out, errs)
	}
}

// redrive retries the dead letters, which fail again.
func (k *topic) redrive(env []string, config string) {
	k.t.Helper()
	code, out, errs := invoke(k.t, "", env, "deadletters", "retry", "--config", config, "--all")
	if want := fmt.Sprintf("%d dead letters failed again", len(k.bad)); code != 1 || !strings.Contains(errs, want) {
		k.t.Errorf("exit code %d, want %q in\n%s%s", code, want, out, errs)
	}
	letters, _ := deadLetters(k.t, env, config)
	out = must(k.t, "", env, "deadletters", "show", "--config", config, strconv.FormatInt(letters[0].ID, 10))
	for _, part := range []string{"key          key-", `"origin":"SAN"`, "delay: body.delay: is missing", "leader-epoch"} {
		if !strings.Contains(out, part) {
			k.t.Errorf("no %q in\n%s", part, out)
		}
	}
}

// plantFaults loses an event, and gives an aborted one an effect.
func (k *topic) plantFaults(url string, env []string, config string) {
	k.t.Helper()
	db, lost, stray := openDatabase(k.t, url), k.good[7], k.aborted[3]
	do := func(query string) {
		k.t.Helper()
		if _, err := db.ExecContext(k.t.Context(), query); err != nil {
			k.t.Fatal(err)
		}
	}
	of := func(e event) string {
		return fmt.Sprintf("hub_partition = '%s' AND sequence_number = %d", e.partition, e.sequence)
	}
	do("UPDATE flights SET sequence_number = -sequence_number - 1000 WHERE " + of(lost))
	k.audit(env, config, 1, fmt.Sprintf("partition %s: event %d is lost", lost.partition, lost.sequence))
	do(fmt.Sprintf("UPDATE flights SET sequence_number = %d, hub_partition = '%s' WHERE sequence_number < 0", stray.sequence, stray.partition))
	k.audit(env, config, 1, fmt.Sprintf("partition %s: event %d is stray", stray.partition, stray.sequence))
	do(fmt.Sprintf("UPDATE flights SET sequence_number = %d, hub_partition = '%s' WHERE %s", lost.sequence, lost.partition, of(stray)))
	k.audit(env, config, 0, fmt.Sprintf("Nothing lost, nothing duplicated: %d events, %d written, %d dead letters, 0 waiting.", len(k.good)+len(k.bad), len(k.good), len(k.bad)))
}

// setBack reads a partition again.
func (k *topic) setBack(url string, env []string, config string) {
	k.t.Helper()
	db := openDatabase(k.t, url)
	plan := must(k.t, "", env, "checkpoints", "set", "--config", config, "--partition", "1", "--to", "offset 5", "--dry-run")
	if end := k.ends()["1"]; !strings.Contains(plan, fmt.Sprintf("would set partition 1: %d → 4: %d events are repeated", end-1, end-5)) {
		k.t.Errorf("planned %s", plan)
	}
	if _, err := db.ExecContext(k.t.Context(), "DELETE FROM flights WHERE hub_partition = '1'"); err != nil {
		k.t.Fatal(err)
	}
	must(k.t, "", env, "checkpoints", "set", "--config", config, "--partition", "1", "--to", "earliest")
	must(k.t, "", env, "run", config, "--until-caught-up")
	_, dead := deadLetters(k.t, env, config)
	exactlyOnce(k.t, slices.Concat(k.good, k.bad), rows(k.t, db), dead)
	if code, _, errs := invoke(k.t, "", env, "checkpoints", "set", "--config", config, "--all", "--to", "sequence 100000"); code != 0 {
		k.t.Error(errs) // after the end means the end
	}
}

// sendMore sends records by the command.
func (k *topic) sendMore(url string, env []string, config string) {
	k.t.Helper()
	const n = 50
	db := openDatabase(k.t, url)
	before := count(k.t, db, countRows)
	must(k.t, "", nil, "send", "--to", "kafka://"+k.brokers, "--topic", k.name, "--key-field", "origin", writeLines(k.t, flights20k(k.t)[:n]))
	must(k.t, "", env, "run", config, "--until-caught-up")
	if rows := count(k.t, db, countRows); rows != before+n {
		k.t.Errorf("%d rows more, want %d", rows-before, n)
	}
	k.audit(env, config, 0, "Nothing lost, nothing duplicated")
}

// moveFromGroup takes over from a consumer group of Kafka.
func moveFromGroup(t *testing.T, brokers []string, url string) {
	const partitions = 3
	k := newTopic(t, partitions, brokers)
	k.fill(partitions)
	env, config, group := k.environment(url), kafkaExample(t), "old-"+k.name

	fails := func(code int, want string, args ...string) {
		t.Helper()
		got, out, errs := invoke(t, "", env, append([]string{"checkpoints", "import", "--config", config}, args...)...)
		if got != code || !strings.Contains(errs, want) {
			t.Errorf("%v: exit code %d, want %q in\n%s%s", args, got, want, out, errs)
		}
	}
	fails(1, "consumer group "+group+" has no offsets of topic "+k.name, "--from-group", group)
	fails(2, "--prefix is for --from-blob", "--from-group", group, "--prefix", "x")
	fails(2, "--from-group GROUP", "--from-group", group, "--from-blob", "x")

	// One partition is done up to a place, one is not begun, of one nothing is known.
	offsets := kadm.Offsets{}
	offsets.AddOffset(k.name, 0, 20, 0)
	offsets.AddOffset(k.name, 1, 0, -1)
	if err := k.admin.CommitAllOffsets(t.Context(), group, offsets); err != nil {
		t.Fatal(err)
	}
	member, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(k.brokers, ",")...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(k.name), kgo.ClientID("old-app"), kgo.DisableAutoCommit())
	if err != nil {
		t.Fatal(err)
	}
	defer member.Close()
	await(t, "the member", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		return len(member.PollFetches(ctx).Records()) > 0
	})
	isOneClearLine(t, env, []string{"checkpoints", "import", "--config", config, "--from-group", group}, "sluice: consumer group "+group+" is still read by old-app at ", "or use --force")
	progress := kafkaExample(t, "# progress_group: flights #", "progress_group: "+group+" #")
	if code, _, errs := invoke(t, "", env, "run", progress, "--until-caught-up"); code != 1 || !strings.Contains(errs, "progress_group "+group+": the consumer group has active members: old-app at ") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	member.Close()

	before, _ := k.committed(group)
	planned := must(t, "", env, "checkpoints", "import", "--config", config, "--from-group", group, "--dry-run")
	if len(checkpoints(t, env, config)) == partitions && checkpoints(t, env, config)[0].Position != nil {
		t.Error("a plan has set checkpoints")
	}
	out := must(t, "", env, "checkpoints", "import", "--config", config, "--from-group", group)
	for _, text := range []string{planned, out} {
		lines := strings.Split(text, "\n")
		if fields := strings.Fields(lines[1]); len(fields) < 3 || fields[0] != "0" || fields[1] != "19" || !strings.Contains(lines[1], "leader-epoch 0") {
			t.Errorf("got %q", lines[1])
		}
		if fields := strings.Fields(lines[2]); len(fields) < 3 || fields[1] != "none" || !strings.Contains(text, "no checkpoint was found for partition 2") {
			t.Errorf("got %s", text)
		}
	}
	fails(1, "has a checkpoint already, at 19", "--from-group", group)
	must(t, "", env, "run", config, "--until-caught-up")
	_, dead := deadLetters(t, env, config)
	left := slices.DeleteFunc(slices.Concat(k.good, k.bad), func(e event) bool { return e.partition == "0" && e.sequence < 20 })
	exactlyOnce(t, left, rows(t, openDatabase(t, url)), dead)
	if after, _ := k.committed(group); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the group's offsets were %v and are %v", before, after)
	}
}

// importOutsideTheLog imports offsets of records that the log does not hold any more, or not yet.
func importOutsideTheLog(t *testing.T, brokers []string, url string) {
	k := newTopic(t, 1, brokers)
	k.fill(1)
	env, args := k.environment(url), []string{"checkpoints", "import", "--config", kafkaExample(t), "--from-group", "old-" + k.name}
	commit := func(at int64) {
		t.Helper()
		offsets := kadm.Offsets{}
		offsets.AddOffset(k.name, 0, at, -1)
		if err := k.admin.CommitAllOffsets(t.Context(), "old-"+k.name, offsets); err != nil {
			t.Fatal(err)
		}
	}
	commit(100_000)
	for _, more := range [][]string{nil, {"--force"}} {
		isOneClearLine(t, env, append(args, more...), "partition 0: the checkpoint is at 99999, but the newest event of "+k.name+" is ", "belongs to another hub or topic")
	}
	commit(20)
	deleted := kadm.Offsets{}
	deleted.AddOffset(k.name, 0, 40, -1)
	if answer, err := k.admin.DeleteRecords(t.Context(), deleted); err != nil || answer.Error() != nil {
		t.Fatal(err, answer.Error())
	}
	isOneClearLine(t, env, args, "partition 0: events 20 to 39 have passed retention", "--force")
	must(t, "", env, append(args, "--force")...)
	if list := checkpoints(t, env, kafkaExample(t)); list[0].Position == nil || *list[0].Position != 39 {
		t.Errorf("the checkpoints are %+v", list)
	}
	must(t, "", env, "run", kafkaExample(t), "--until-caught-up")
	_, dead := deadLetters(t, env, kafkaExample(t))
	left := slices.DeleteFunc(slices.Concat(k.good, k.bad), func(e event) bool { return e.sequence < 40 })
	exactlyOnce(t, left, rows(t, openDatabase(t, url)), dead)
}
