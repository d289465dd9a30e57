package agent

import (
	"bufio"
	"bytes"
	"io"
)

// The kinds of frames, for tests that write frames of their own.
const (
	KindGreeting = kindGreeting
	KindRequest  = kindRequest
	KindAnswer   = kindAnswer
	KindRefusal  = kindRefusal
)

// Frame is the bytes of a frame.
func Frame(k kind, name string, id uint64, body []byte) []byte {
	f := frame{kind: k, name: name, id: id, body: body}
	return f.append(nil)
}

// Greet is the bytes of a beacon and a greeting.
func Greet(token string, g Greeting) []byte {
	var b bytes.Buffer
	_ = writeGreeting(&b, token, g) // a Buffer takes all
	return b.Bytes()
}

// Unread is a client that has not looked at what it has got beside the greeting.
func Unread(c *Stream) *Stream {
	c.in = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(buffered(c)), c.in), 4096)
	return c
}

func buffered(c *Stream) []byte {
	waiting, _ := c.in.Peek(c.in.Buffered()) // no more than there is
	_, _ = c.in.Discard(len(waiting))
	return bytes.Clone(waiting)
}
