package recording

import "github.com/seed-3119e985/genv/snapshot"

// Judged is a copy of what of a snapshot the rules look at. Command lines, temperatures, power,
// shells of environments, warnings and the identity of the machine are left out.
func Judged(s *snapshot.Snapshot) *snapshot.Snapshot {
	j := &snapshot.Snapshot{UTCOffset: s.UTCOffset, Extensions: s.Extensions}
	j.Processes = make([]snapshot.Process, len(s.Processes))
	for i := range s.Processes {
		p := s.Processes[i]
		p.Command = ""
		j.Processes[i] = p
	}
	j.Environments = make([]snapshot.Environment, len(s.Environments))
	for i := range s.Environments {
		e := s.Environments[i]
		e.PIDs, e.KernelIDs = nil, nil
		j.Environments[i] = e
	}
	j.Devices = make([]snapshot.Device, len(s.Devices))
	for i := range s.Devices {
		d := &s.Devices[i]
		j.Devices[i] = snapshot.Device{
			Index: d.Index, TotalMemory: d.TotalMemory, Attachments: d.Attachments, UUID: d.UUID,
			Utilization: d.Utilization, Instances: d.Instances, ProcessesUnknown: d.ProcessesUnknown,
		}
	}
	return j
}
