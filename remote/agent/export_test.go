package agent

import (
	"bytes"
	"io"
	"sync"

	"github.com/seed-3119e985/genv/remote/agent/frame"
)

// Frame is the bytes of a frame.
func Frame(k frame.Kind, name string, id uint64, body []byte) []byte {
	f := frame.Frame{Kind: k, Name: name, ID: id, Body: body}
	return f.Append(nil)
}

// Greet is the bytes of a beacon and a greeting.
func Greet(token string, g frame.Greeting) []byte {
	b, _ := g.Encode(token) // a Greeting can always be encoded
	return b
}

// Scripted is a host that says what it says: up to the end of hello at once, and the rest when it was asked something.
func Scripted(says, hello []byte) (in io.Reader, out io.Writer) {
	if at := bytes.Index(says, hello); at >= 0 {
		asked := make(chan struct{})
		once := sync.OnceFunc(func() { close(asked) })
		at += len(hello)
		return io.MultiReader(bytes.NewReader(says[:at]), after{asked, bytes.NewReader(says[at:])}), writer(func() { once() })
	}
	return bytes.NewReader(says), io.Discard
}

type after struct {
	asked <-chan struct{}
	io.Reader
}

func (a after) Read(p []byte) (int, error) {
	<-a.asked
	return a.Reader.Read(p)
}

type writer func()

func (w writer) Write(p []byte) (int, error) {
	w()
	return len(p), nil
}
