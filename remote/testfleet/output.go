package testfleet

import (
	"bytes"
	"sync"
)

// ProgramOutput is what a program has printed so far: it may be read while the program writes. The
// zero ProgramOutput is empty.
type ProgramOutput struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer. It has no error.
func (o *ProgramOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// String is all that was written so far.
func (o *ProgramOutput) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
