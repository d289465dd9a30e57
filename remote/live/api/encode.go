package api

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// encoder encodes a Fleet as json.Marshal does. This is what costs most when somebody looks:
// hosts that haven't changed stay as they were encoded, and the others are written without
// reflection.
type encoder struct {
	last    *fleetText
	scratch []byte
}

// fleetText is an encoded Fleet, in pieces. It is never changed.
type fleetText struct {
	run      string
	revision uint64
	rest     []byte // all but the hosts, without the last brace
	hosts    []hostText
}

// hostText is an encoded host.
type hostText struct {
	name    snapshot.Hostname
	changed uint64
	seen    time.Time
	head    []byte // what comes before "seen"
	tail    []byte // and after it
}

// rest is a Fleet without its hosts.
type rest struct {
	*live.Fleet
	Hosts any `json:"hosts,omitempty"` // hides those of Fleet
}

// encode encodes a Fleet, or returns what it returned last if that is the same one.
func (e *encoder) encode(f *live.Fleet) (*fleetText, error) {
	if last := e.last; last != nil && last.run == f.Run && last.revision == f.Revision {
		return last, nil
	}
	body, err := json.Marshal(rest{Fleet: f})
	if err != nil {
		return nil, err
	}
	text := &fleetText{run: f.Run, revision: f.Revision, rest: body[:len(body)-1], hosts: make([]hostText, len(f.Hosts))}
	var before []hostText
	if e.last != nil {
		before = e.last.hosts
	}
	for i := range f.Hosts {
		h := &f.Hosts[i]
		if i < len(before) && before[i].name == h.Name && before[i].changed == h.Changed {
			text.hosts[i] = before[i]
		} else if text.hosts[i], err = e.host(h); err != nil {
			return nil, err
		}
		text.hosts[i].seen = h.Seen
	}
	e.last = text
	return text, nil
}

// writeTo writes the document. Of hosts that haven't changed after a revision it leaves out
// all but that: see since.
func (t *fleetText) writeTo(w io.Writer, since uint64) error {
	out := bufio.NewWriterSize(w, 64<<10)
	_, _ = out.Write(t.rest) // the error is that of Flush
	_, _ = out.WriteString(`,"hosts":[`)
	for i := range t.hosts {
		h := &t.hosts[i]
		text := append(separate(out.AvailableBuffer(), i), h.head...)
		if !h.seen.IsZero() {
			text = appendTime(append(text, `,"seen":`...), h.seen)
		}
		_, _ = out.Write(text)
		if h.changed > since {
			_, _ = out.Write(h.tail)
		} else {
			_, _ = out.WriteString(`,"same":true}`)
		}
	}
	_, _ = out.WriteString("]}\n")
	return out.Flush()
}

// host encodes what most hosts have by hand.
func (e *encoder) host(h *live.Host) (hostText, error) {
	encoded := hostText{name: h.Name, changed: h.Changed}
	text := appendString(append(e.scratch[:0], `{"host":`...), string(h.Name))
	text, err := appendRare(text, `,"labels":`, h.Labels, len(h.Labels) > 0)
	text = appendOptional(text, `,"via":`, string(h.Via))
	encoded.head = bytes.Clone(text)
	text, errFailure := appendRare(text[:0], `,"failure":`, h.Failure, h.Failure != nil)
	text = appendGPUs(append(text, `,"gpus":`...), h.GPUs)
	text, errWarnings := appendRare(text, `,"warnings":`, h.Warnings, len(h.Warnings) > 0)
	text, errGuard := appendRare(text, `,"guard":`, &h.Guard, h.Guard != (live.Guard{}))
	if h.Service != nil {
		text = strconv.AppendBool(append(text, `,"service":`...), *h.Service)
	}
	text = strconv.AppendUint(append(text, `,"changed":`...), h.Changed, 10)
	encoded.tail, e.scratch = bytes.Clone(append(text, '}')), text
	return encoded, cmp.Or(err, errFailure, errWarnings, errGuard)
}

// appendRare appends a field that few have, if it is there.
func appendRare(text []byte, key string, value any, there bool) ([]byte, error) {
	if !there {
		return text, nil
	}
	encoded, err := json.Marshal(value)
	return append(append(text, key...), encoded...), err
}

func appendGPUs(text []byte, list []gpus.GPU) []byte {
	if list == nil {
		return append(text, "null"...)
	}
	text = append(text, '[')
	for i := range list {
		g := &list[i]
		text = strconv.AppendInt(append(separate(text, i), `{"index":`...), int64(g.Index), 10)
		text = appendOptional(text, `,"uuid":`, string(g.UUID))
		text = appendOptional(text, `,"model":`, g.Model)
		text = appendString(append(text, `,"state":`...), string(g.State))
		text = appendNumber(text, `,"memory_used_bytes":`, g.MemoryUsed)
		text = appendNumber(text, `,"memory_total_bytes":`, g.MemoryTotal)
		text = appendNumber(text, `,"utilization_percent":`, g.Utilization)
		text = appendNumber(text, `,"temperature_celsius":`, g.Temperature)
		if g.Power != nil {
			text = appendFloat(append(text, `,"power_watts":`...), *g.Power)
		}
		text, _ = appendRare(text, `,"mig":`, g.Instances, len(g.Instances) > 0) // texts can always be encoded
		text = append(text, `,"attached":[`...)
		for j := range g.Attached {
			text = appendAttachment(separate(text, j), &g.Attached[j])
		}
		text = append(text, `],"processes":[`...)
		for j := range g.Processes {
			text = appendProcess(separate(text, j), &g.Processes[j])
		}
		text = append(text, ']', '}')
	}
	return append(text, ']')
}

func appendAttachment(text []byte, a *gpus.Attachment) []byte {
	text = appendString(append(text, `{"eid":`...), string(a.EID))
	text = appendOptional(text, `,"name":`, a.Name)
	text = appendOptional(text, `,"user":`, string(a.User))
	if !a.Since.IsZero() {
		text = appendTime(append(text, `,"since":`...), a.Since)
	}
	text = appendNumber(text, `,"memory_bytes":`, a.Memory)
	text, _ = appendRare(text, `,"mig":`, a.Instances, len(a.Instances) > 0) // texts can always be encoded
	return append(text, '}')
}

func appendProcess(text []byte, p *gpus.Process) []byte {
	text = strconv.AppendInt(append(text, `{"pid":`...), int64(p.PID), 10)
	if p.Start != 0 {
		text = strconv.AppendUint(append(text, `,"start":`...), uint64(p.Start), 10)
	}
	text = appendOptional(text, `,"user":`, string(p.User))
	text = appendOptional(text, `,"eid":`, string(p.EID))
	text = appendOptional(text, `,"command":`, p.Command)
	text = appendNumber(text, `,"memory_bytes":`, p.Memory)
	text = appendOptional(text, `,"container":`, p.Container)
	text = appendOptional(text, `,"image":`, p.Image)
	text, _ = appendRare(text, `,"mig":`, p.Instances, len(p.Instances) > 0) // texts can always be encoded
	text = appendOptional(text, `,"container_name":`, p.ContainerName)
	return append(appendOptional(text, `,"started_by":`, string(p.StartedBy)), '}')
}

func separate(text []byte, i int) []byte {
	if i == 0 {
		return text
	}
	return append(text, ',')
}

func appendOptional(text []byte, key, value string) []byte {
	if value == "" {
		return text
	}
	return appendString(append(text, key...), value)
}

func appendNumber[N int | int64](text []byte, key string, value *N) []byte {
	if value == nil {
		return text
	}
	return strconv.AppendInt(append(text, key...), int64(*value), 10)
}

func appendFloat(text []byte, value float64) []byte {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return append(text, "null"...)
	}
	return strconv.AppendFloat(text, value, 'f', -1, 64)
}

func appendTime(text []byte, t time.Time) []byte {
	text = t.AppendFormat(append(text, '"'), time.RFC3339Nano)
	return append(text, '"')
}

// appendString appends a string. Most need no escapes.
func appendString(text []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			escaped, _ := json.Marshal(s) // of a string it returns no error
			return append(text, escaped...)
		}
	}
	return append(append(append(text, '"'), s...), '"')
}
