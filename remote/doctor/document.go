package doctor

import (
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot/doctor"
)

// Schema names the document of `genv remote doctor --format json`; docs/json.md describes it.
const Schema = "genv.remote.doctor/1"

// Document is what a controller found about a fleet.
type Document struct {
	Schema   string         `json:"schema"`
	Time     time.Time      `json:"time"`
	Genv     doctor.Program `json:"genv"` // of the controller
	Status   doctor.Status  `json:"status"`
	OK       int            `json:"ok"` // hosts
	Warnings int            `json:"warnings"`
	Failures int            `json:"failures"`
	Hosts    []Host         `json:"hosts"`
	// Controllers are the checks of an election: etcd, the leader, and each standby and each that is lost.
	Controllers []doctor.Check   `json:"controllers"`
	Failed      []remote.Failure `json:"failed"` // hosts on which no command ran
	// Duplicates are names of machines that have another name here too.
	Duplicates []controller.Duplicate `json:"duplicates"`
}

// DocumentOf judges the controllers of hosts, and counts hosts. e is nil if there is no election.
func DocumentOf(hosts []Host, e *Election, genv doctor.Program, at time.Time) Document {
	d := Document{Schema: Schema, Time: at.UTC(), Genv: genv, Hosts: hosts, Failed: []remote.Failure{}, Duplicates: []controller.Duplicate{}}
	d.judgeControllers(e)
	d.Status = doctor.Overall(d.Controllers)
	for i := range hosts {
		switch hosts[i].Status {
		case doctor.Failed:
			d.Failures++
		case doctor.Warning:
			d.Warnings++
		default:
			d.OK++
		}
		if hosts[i].Status.Worse(d.Status) {
			d.Status = hosts[i].Status
		}
		if hosts[i].Failure != nil {
			d.Failed = append(d.Failed, *hosts[i].Failure)
		}
	}
	return d
}
