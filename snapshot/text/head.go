package text

import "strings"

// Head is a writer that keeps the beginning of what is written to it, such as the output of a
// program.
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
