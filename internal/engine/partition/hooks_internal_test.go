package partition

import "testing"

// No hook starts once the queue is closed: nobody would wait for it.
func TestHooksAfterClose(t *testing.T) {
	var q hookQueue
	called := 0
	q.push(func() { called++ })
	q.close()
	q.push(func() { called++ })
	q.running.Wait()
	if called != 1 {
		t.Errorf("%d calls, want those before the close", called)
	}
}
