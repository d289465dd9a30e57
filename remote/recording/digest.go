package recording

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/seed-3119e985/genv/enforce"
)

// Digest is the same for two plans by which the same is found, decided, done and said to users.
type Digest [8]byte

// String is the digest in hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// DigestOf is the digest of what came of a judgement. Command lines, which are not recorded, make
// no difference, nor do the moments at which something was first seen.
func DigestOf(plan *enforce.Plan, events []enforce.Event) (d Digest) {
	sum := sha256.New()
	for i := range plan.Findings {
		f := plan.Findings[i]
		decision := f.Decision()
		f.Command, f.Since, f.Due, f.Stuck = "", time.Time{}, time.Time{}, nil
		line, err := json.Marshal(&f)
		fmt.Fprintf(sum, "%s %s %v\n", line, decision, err)
	}
	for i := range plan.Reports {
		digestReport(sum, &plan.Reports[i])
	}
	for i := range events {
		if e := &events[i]; e.Kind == enforce.EventNotify {
			fmt.Fprintf(sum, "notify %s %s %s\n", e.Host, e.ID, e.Decision)
		}
	}
	copy(d[:], sum.Sum(nil))
	return d
}

func digestReport(w io.Writer, r *enforce.HostReport) {
	fmt.Fprintf(w, "report %s %d %t\n", r.Host, r.Report.Grace, r.Report.Kill)
	for i := range r.Report.Terminate {
		t := &r.Report.Terminate[i]
		fmt.Fprintf(w, "end %d %d %q\n", t.Process.PID, t.Process.Start, t.Because)
	}
	for i := range r.Report.Detach {
		d := &r.Report.Detach[i]
		fmt.Fprintf(w, "detach %d %s %q\n", d.Device, d.Environment.EID, d.Because)
	}
}
