package sshclient

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// OpenSSH's limits for text before the version (RFC 4253, section 4.2), such as a ProxyCommand's. The SSH library's
// limit is 255 bytes per line.
const (
	maxPrefaceLines = 1024
	maxPrefaceLine  = 8192
)

const versionPrefix = "SSH-"

func skipPreface(r io.ByteReader) error {
	for range maxPrefaceLines {
		matched := 0
		for length := 0; ; length++ {
			if length > maxPrefaceLine+1 { // with the carriage return
				return fmt.Errorf("a line of more than %d bytes came before the version of an SSH server",
					maxPrefaceLine)
			}
			next, err := r.ReadByte()
			if err != nil {
				return err
			}
			if next == '\n' {
				break
			}
			if matched == length && length < len(versionPrefix) && next == versionPrefix[length] {
				if matched++; matched == len(versionPrefix) {
					return nil
				}
			}
		}
	}
	return fmt.Errorf("%d lines came, and none was the version of an SSH server", maxPrefaceLines)
}

// afterPreface skips the text before the version. It buffers that: the library reads byte by byte, and a hostile host
// would cost seconds of CPU time.
type afterPreface struct {
	net.Conn
	skipped bool
	buffer  *bufio.Reader // nil once empty and the version is read
	version string        // the part that was read but not returned yet
	heard   atomic.Bool   // something was read since this was reset
}

func (a *afterPreface) Read(p []byte) (int, error) {
	if !a.skipped {
		buffer := bufio.NewReader(a.Conn)
		if err := skipPreface(buffer); err != nil {
			return 0, err
		}
		a.skipped, a.buffer, a.version = true, buffer, versionPrefix
	}
	switch {
	case a.version != "":
		n := copy(p, a.version)
		a.version = a.version[n:]
		return n, nil
	case a.buffer != nil && (a.buffer.Buffered() > 0 || len(p) == 1):
		return a.buffer.Read(p)
	}
	a.buffer = nil // frees it early
	n, err := a.Conn.Read(p)
	if n > 0 {
		a.heard.Store(true)
	}
	return n, err
}

// capture keeps output up to a limit. On overflow it drops the rest and calls onOverflow once, which ends the command.
// An error would hang the SSH library.
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

// drain has half the stack of io.Copy, for thousands of hosts at once.
func drain(r io.Reader, c *capture) {
	buffer := make([]byte, 256)
	for {
		n, err := r.Read(buffer)
		_, _ = c.Write(buffer[:n]) // never fails
		if err != nil {
			return
		}
	}
}
