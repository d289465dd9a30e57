package enforce

import "github.com/seed-3119e985/genv/snapshot"

// Report is what one host is to do: first every detachment, so that nobody can
// start anew on a device that is being taken away, then the terminations.
type Report struct {
	Terminate []Termination // in ascending order of PID
	Detach    []Detachment  // in order of device, then environment
}

// Termination names a process as it was judged: PID, start time, devices and
// environment. The host signals it only if all of them still hold.
type Termination struct{ Process snapshot.Process }

// Detachment takes a device from an environment.
type Detachment struct {
	Device      snapshot.DeviceIndex
	Environment snapshot.Environment
}

// Empty says that there is nothing to do.
func (r Report) Empty() bool { return len(r.Terminate) == 0 && len(r.Detach) == 0 }

// Terminates says whether the report ends the process with this PID.
func (r Report) Terminates(pid snapshot.PID) bool {
	for i := range r.Terminate {
		if r.Terminate[i].Process.PID == pid {
			return true
		}
	}
	return false
}
