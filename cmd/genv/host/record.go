package host

import (
	"fmt"
	"os"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	enforcelocal "github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// hostRecord writes this host's audit log. If it can't be written, that is a warning,
// and actions are still carried out: the log of the controller decides about that.
type hostRecord struct {
	path string
	now  func() time.Time
	by   string
	proc proc.FS
}

// reportRecord is the record of one report.
type reportRecord struct {
	*hostRecord
	items    []audit.Record
	warnings []string // why it could not be written
}

// begin records what will be done.
func (h *hostRecord) begin(report enforce.Report, refused []enforce.Termination) *reportRecord {
	report.Terminate = append(report.Terminate[:len(report.Terminate):len(report.Terminate)], refused...)
	r := &reportRecord{hostRecord: h}
	r.items = audit.ReportRecords(snapshot.Hostname(enforcelocal.Hostname()), report, nil)
	for i := range r.items {
		item := &r.items[i]
		item.Report, item.By = report.ID, r.by
		if item.Report == "" {
			item.Report = fmt.Sprintf("%d/%d", os.Getpid(), r.now().UnixNano())
		}
		if item.PID != 0 && item.UID == nil {
			if uid, err := r.proc.Owner(item.PID); err == nil {
				item.UID = &uid
			}
		}
	}
	r.append(r.items)
	return r
}

// end records the outcomes.
func (r *reportRecord) end(outcomes []enforce.Outcome) {
	r.append(audit.OutcomeRecords(r.items, outcomes))
}

func (r *reportRecord) append(records []audit.Record) {
	if r.path == "" || len(records) == 0 {
		return
	}
	for i := range records {
		records[i].Time = r.now().UTC()
	}
	if err := audit.AppendHostLog(r.path, records...); err != nil {
		r.warnings = append(r.warnings, fmt.Sprintf("not recorded on this host: %v", err))
	}
}
