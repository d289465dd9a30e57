package live

import (
	"bufio"
	"encoding/json"
	"io"
	"time"

	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
)

// encoder encodes a Fleet. This is what costs most when somebody looks: hosts that haven't
// changed stay as they were encoded.
type encoder struct{ last *fleetText }

// fleetText is an encoded Fleet, in pieces. It is never changed.
type fleetText struct {
	run      string
	revision uint64
	rest     json.RawMessage // all but the hosts
	hosts    []hostText
}

// hostText is an encoded host, but for when it was seen.
type hostText struct {
	name    snapshot.Hostname
	changed uint64
	seen    time.Time
	whole   json.RawMessage
	same    json.RawMessage // for those who know the whole
}

// rest is a Fleet without its hosts.
type rest struct {
	*Fleet
	Hosts any `json:"hosts,omitempty"` // hides those of Fleet
}

// sameHost is a host that hasn't changed.
type sameHost struct {
	Name   snapshot.Hostname `json:"host"`
	Labels map[string]string `json:"labels,omitempty"`
	Via    agent.Via         `json:"via,omitempty"`
	Same   bool              `json:"same"`
}

// encode encodes a Fleet, or returns what it returned last if that is the same one.
func (e *encoder) encode(f *Fleet) (*fleetText, error) {
	if last := e.last; last != nil && last.run == f.Run && last.revision == f.Revision {
		return last, nil
	}
	body, err := json.Marshal(rest{Fleet: f})
	if err != nil {
		return nil, err
	}
	text := &fleetText{run: f.Run, revision: f.Revision, rest: body, hosts: make([]hostText, len(f.Hosts))}
	var before []hostText
	if e.last != nil {
		before = e.last.hosts
	}
	for i := range f.Hosts {
		h := &f.Hosts[i]
		if i < len(before) && before[i].name == h.Name && before[i].changed == h.Changed {
			text.hosts[i] = before[i]
		} else if text.hosts[i], err = encodeHost(*h); err != nil {
			return nil, err
		}
		text.hosts[i].seen = h.Seen
	}
	e.last = text
	return text, nil
}

func encodeHost(h Host) (text hostText, err error) {
	text.name, text.changed, h.Seen = h.Name, h.Changed, time.Time{}
	if text.whole, err = json.Marshal(h); err != nil {
		return text, err
	}
	text.same, err = json.Marshal(sameHost{h.Name, h.Labels, h.Via, true})
	return text, err
}

// writeTo writes the document. Of hosts that haven't changed after a revision it leaves out
// what their viewer knows.
func (t *fleetText) writeTo(w io.Writer, since uint64) error {
	out := bufio.NewWriterSize(w, 64<<10)
	_, _ = out.Write(open(t.rest)) // the error is that of Flush
	_, _ = out.WriteString(`,"hosts":[`)
	for i := range t.hosts {
		if i > 0 {
			_ = out.WriteByte(',')
		}
		h := &t.hosts[i]
		if h.changed > since {
			_, _ = out.Write(open(h.whole))
		} else {
			_, _ = out.Write(open(h.same))
		}
		if !h.seen.IsZero() {
			_, _ = out.Write(h.seen.AppendFormat(append(out.AvailableBuffer(), `,"seen":"`...), time.RFC3339Nano))
			_ = out.WriteByte('"')
		}
		_ = out.WriteByte('}')
	}
	_, _ = out.WriteString("]}\n")
	return out.Flush()
}

// open is a JSON object without its last brace, so that fields can follow.
func open(object json.RawMessage) []byte { return object[:len(object)-1] }
