// Package partition holds one partition: an [Assignment], from the acquisition of its lease to the
// release or the loss of it. It claims the checkpoint, opens the log after it, and hands what it
// reads to a [Worker] until one of them fails; then it starts over. It watches for stalls, silent
// readers and the lag, and runs hooks and copies of dead letters.
//
// To change the loop of claim, open and read, see reading.go; the goroutines and their ends,
// assignment.go; what counts as a stall, stall.go, progress.go and activity.go; what an assignment
// needs of its consumer, host.go.
package partition
