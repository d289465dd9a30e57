package metrics

import (
	"runtime"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/live"
)

const otherRule enforce.Rule = "other" // for an unknown reason

func rules() []enforce.Rule { return append(enforce.Rules(), otherRule) }

// Build has the program's version.
func Build(version string) []byte {
	var w Writer
	w.Gauge("genv_build_info", "1 for the controller, with its version.", "version", "goversion")
	w.Sample(1, version, runtime.Version())
	return w.Text()
}

// Findings has the last cycle's; empty if it judged nothing.
func Findings(f *live.FleetState) []byte {
	if !f.Enforcing || f.Cycle == 0 {
		return nil
	}
	counts := make(map[[2]string]uint64)
	for i := range f.Findings {
		counts[[2]string{string(f.Findings[i].Rule), string(f.Findings[i].Decision)}]++
	}
	var w Writer
	w.Gauge("genv_findings", "Findings of the last cycle, by rule and by what is done about them.", "rule", "decision")
	sampleRules(&w, counts, []enforce.Decision{
		enforce.DecisionAct, enforce.DecisionWait, enforce.DecisionHold, enforce.DecisionDryRun, enforce.DecisionStuck,
		enforce.DecisionUnderWay, enforce.DecisionNone,
	})
	w.Value("genv_held", "Users and hosts for which a safety limit keeps actions back.",
		float64(len(f.HeldUsers)+len(f.HeldHosts)))
	w.Value("genv_rules_on_hold", "Whether an operator has rules do nothing (1).", number(f.Hold != nil))
	if e := f.Election; e != nil {
		w.Value("genv_leader", "Whether this controller leads (1).", number(e.Role == election.Leading))
		w.Value("genv_leader_since_timestamp_seconds", "Since when this controller leads, or doesn't.",
			float64(e.Since.Unix()))
		w.Value("genv_leader_etcd_up", "Whether etcd answers (1).", number(e.Error == ""))
		if !e.Answered.IsZero() {
			w.Value("genv_leader_etcd_answered_timestamp_seconds",
				"When etcd answered last; to a leader, that its term goes on.", float64(e.Answered.Unix()))
		}
		if e.Role == election.Leading {
			w.Value("genv_leader_epoch", "The epoch with which this controller leads.", float64(e.Epoch))
			if !e.Memory.IsZero() {
				w.Value("genv_leader_memory_timestamp_seconds", "When this leader wrote its memory to etcd last.",
					float64(e.Memory.Unix()))
			}
		}
	}
	w.Value("genv_unrecorded", "Whether the record can't be written (1).", number(f.Unrecorded != ""))
	return w.Text()
}
