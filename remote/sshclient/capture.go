package sshclient

import (
	"bytes"
	"io"
	"sync"
)

// tail keeps the last bytes written to it: between limit and twice the limit.
type tail struct {
	limit int
	mu    sync.Mutex
	kept  []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, b...)
	if over := len(t.kept) - t.limit; over > t.limit {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}

// capture keeps what a command writes, up to a limit. It returns no error, after
// which the SSH library would hang: more output is dropped, and onOverflow is
// called once, which ends the command.
type capture struct {
	name       string // stdout or stderr
	limit      int64
	onOverflow func()

	mu       sync.Mutex
	kept     bytes.Buffer
	overflow bool
}

func (c *capture) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	room := c.limit - int64(c.kept.Len())
	c.kept.Write(b[:min(int64(len(b)), room)])
	if int64(len(b)) > room && !c.overflow {
		c.overflow = true
		c.onOverflow()
	}
	return len(b), nil
}

// bytes is a copy of what was kept so far.
func (c *capture) bytes() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Clone(c.kept.Bytes())
}

func (c *capture) overflowed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.overflow
}

// drain reads everything. The buffer is small, since it is in use as long as a command runs,
// on thousands of hosts at the same time; io.Copy would need twice the stack.
func drain(r io.Reader, c *capture) {
	buffer := make([]byte, 256)
	for {
		n, err := r.Read(buffer)
		_, _ = c.Write(buffer[:n]) // it returns no error
		if err != nil {
			return
		}
	}
}
