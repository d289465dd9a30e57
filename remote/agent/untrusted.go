package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot/text"
)

const (
	maxLine     = 4096 // bytes
	maxReason   = 1024 // bytes
	maxWarnings = 64   // lines, and two more for each item
)

func boundLines(lines []string, limit int) []string {
	kept := lines[:min(len(lines), limit)]
	for i, line := range kept {
		kept[i] = shortened(line, maxLine)
	}
	return kept
}

func shortenReasons(outcomes []order.Outcome) {
	for i := range outcomes {
		outcomes[i].Reason = shortened(outcomes[i].Reason, maxReason)
	}
}

func shortened(said string, limit int) string {
	if len(said) <= limit {
		return said
	}
	return strings.Clone(text.Cut(said, limit))
}

// checkOutcomes checks that each item has one outcome, detachments first, in the sequence of the order.
func checkOutcomes(sent order.Order, outcomes []order.Outcome) error {
	if items := len(sent.Detach) + len(sent.Terminate); len(outcomes) != items {
		return remote.Errorf(remote.InvalidOutput, "%d outcomes came for %d items", len(outcomes), items)
	}
	for i, o := range outcomes {
		var item order.Outcome
		if i < len(sent.Detach) {
			d := &sent.Detach[i]
			item = order.Outcome{Device: d.Device, EID: d.Environment.EID}
		} else {
			p := &sent.Terminate[i-len(sent.Detach)].Process
			item = order.Outcome{PID: p.PID, EID: p.EID}
		}
		if o.PID != item.PID || o.Device != item.Device || o.EID != item.EID || !o.Status.Known() {
			return remote.Errorf(remote.InvalidOutput, "outcome %d is not that of its item: it says %+v", i, o)
		}
	}
	return nil
}

// jsonIn returns the JSON object at the end of a command's output, with the blanks after it. A login shell may print
// braces or whole objects before it, in the same line; each whole object is passed to before. Without an object at the
// end it returns the text from the first brace, which isn't JSON, or nil without a brace.
func jsonIn(output []byte, before func(object []byte)) []byte {
	first := bytes.IndexByte(output, '{')
	if first < 0 {
		return nil
	}
	effort := 4 * len(output) // bounds what a host can cost the controller with braces
	for at := first; effort > 0; {
		var bad *json.SyntaxError
		if !errors.As(json.Unmarshal(output[at:], &struct{}{}), &bad) {
			return output[at:]
		}
		effort -= int(bad.Offset)
		after := at + 1
		if whole := output[at : at+int(bad.Offset)-1]; json.Valid(whole) { // the error is the text after it
			before(whole)
			after = at + len(whole)
		}
		next := bytes.IndexByte(output[after:], '{')
		if next < 0 {
			break
		}
		at = after + next
	}
	return output[first:]
}
