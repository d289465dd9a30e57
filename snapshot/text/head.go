package text

import (
	"strings"
	"sync"
)

// Head is a writer that keeps the beginning of what is written to it, such as the output of a program.
type Head struct {
	Limit int  // in bytes
	Cut   bool // more was written

	kept strings.Builder
}

// Write implements io.Writer. It has no error, since a program would end because of it.
func (h *Head) Write(p []byte) (int, error) {
	room := min(len(p), h.Limit-h.kept.Len())
	h.Cut = h.Cut || room < len(p)
	h.kept.Write(p[:room])
	return len(p), nil
}

// String is what was kept.
func (h *Head) String() string { return h.kept.String() }

// Tail keeps the end of what a program writes. It is safe for concurrent use.
type Tail struct {
	Limit int // in bytes

	mu   sync.Mutex
	kept []byte
}

// Write implements io.Writer, without an error.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	t.kept = append(t.kept[:0], t.kept[max(0, len(t.kept)-t.Limit):]...)
	return len(p), nil
}

// String is what was kept.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}

// LastLine is the last line with text in it, printable and not too long: where a program says why it failed.
func LastLine(output string) string {
	output = strings.TrimSpace(output)
	return Printable(Cut(output[strings.LastIndexAny(output, "\r\n")+1:], 300))
}
