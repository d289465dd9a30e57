// Package simulated has a fleet in memory that changes at random, the same way for the same seed,
// to test and measure recordings of years in minutes.
package simulated

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// Fleet is such a fleet; New makes one. Hosts are as they are now.
type Fleet struct {
	Hosts   []snapshot.Host
	random  *rand.Rand
	now     time.Time
	nextPID []snapshot.PID
	devices int
	lost    map[int]*snapshot.Snapshot // of hosts that don't answer
}

// Lost is the error of a host that doesn't answer.
type Lost string

// Error implements error.
func (l Lost) Error() string { return string(l) }

// Kind is the class of the error.
func (l Lost) Kind() string { return string(l) }

// New makes hosts with so many devices each, half of which are in use.
func New(seed uint64, hosts, devices int, now time.Time) *Fleet {
	f := &Fleet{random: rand.New(rand.NewPCG(seed, 1)), now: now, devices: devices, lost: make(map[int]*snapshot.Snapshot), nextPID: make([]snapshot.PID, hosts)}
	for i := range hosts {
		offset := 3600
		s := &snapshot.Snapshot{UTCOffset: &offset, BootID: fmt.Sprintf("boot-%d", i), Warnings: []string{"a warning"}}
		for d := range devices {
			utilization := 0
			s.Devices = append(s.Devices, snapshot.Device{
				Index: snapshot.DeviceIndex(d), TotalMemory: snapshot.MiB(81559), Name: "NVIDIA H100 80GB HBM3", Utilization: &utilization,
				UUID: snapshot.GPUUUID(fmt.Sprintf("GPU-%08x-%04x-%04x-%012x", f.random.Uint32(), i, d, f.random.Uint64()>>16)),
			})
		}
		f.nextPID[i] = snapshot.PID(2000 + f.random.IntN(30_000))
		f.Hosts = append(f.Hosts, snapshot.Host{Name: snapshot.Hostname(fmt.Sprintf("gpu%04d", i)), Labels: map[string]string{"rack": fmt.Sprint(i / 20)}, Snapshot: s})
		for range devices / 2 {
			f.start(i, s)
		}
	}
	return f
}

// Cluster is the fleet as it is now. Later changes don't change it.
func (f *Fleet) Cluster() snapshot.Cluster { return snapshot.Cluster{Hosts: slices.Clone(f.Hosts)} }

// Change changes so many hosts, chosen at random, at a moment. Snapshots of the others stay the
// same values.
func (f *Fleet) Change(now time.Time, hosts int) {
	f.now = now
	for range hosts {
		f.ChangeHost(f.random.IntN(len(f.Hosts)))
	}
}

// ChangeHost changes one host.
func (f *Fleet) ChangeHost(i int) {
	h := &f.Hosts[i]
	if h.Err != nil {
		h.Err, h.Snapshot = nil, f.lost[i]
		return
	}
	s := f.copy(h.Snapshot)
	h.Snapshot = s
	chance := f.random.IntN(100)
	if starts := chance >= 65 && chance < 75 || chance >= 85 && chance < 90; starts && len(s.Processes) >= 3*f.devices {
		f.end(s)
		return
	}
	switch {
	case chance < 45:
		f.compute(s)
	case chance < 65:
		f.grow(s)
	case chance < 75:
		f.start(i, s)
	case chance < 85:
		f.end(s)
	case chance < 90:
		f.stray(i, s)
	case chance < 94:
		f.attach(s)
	case chance < 98:
		f.detach(s)
	case chance < 99:
		f.leave(s)
	default:
		f.lost[i], h.Snapshot = s, nil
		h.Err = Lost([]string{"unreachable", "timeout", "auth"}[f.random.IntN(3)])
	}
}

func (f *Fleet) copy(s *snapshot.Snapshot) *snapshot.Snapshot {
	next := *s
	next.Processes, next.Environments, next.Devices = slices.Clone(s.Processes), slices.Clone(s.Environments), slices.Clone(s.Devices)
	for i := range next.Devices {
		watts := float64(f.random.IntN(700))
		next.Devices[i].Power = &watts // it changes all the time, and is not judged
	}
	return &next
}

// compute changes the utilization of each device in use.
func (f *Fleet) compute(s *snapshot.Snapshot) {
	for i := range s.Devices {
		percent := 0
		if len(s.Devices[i].Attachments) > 0 && f.random.IntN(4) > 0 {
			percent = f.random.IntN(101)
		}
		s.Devices[i].Utilization = &percent
	}
}

// grow changes how much memory a process uses.
func (f *Fleet) grow(s *snapshot.Snapshot) {
	if len(s.Processes) == 0 {
		return
	}
	p := &s.Processes[f.random.IntN(len(s.Processes))]
	p.Usage = slices.Clone(p.Usage)
	for i := range p.Usage {
		p.Usage[i].Memory = snapshot.MiB(int64(100 + f.random.IntN(30_000)))
	}
}

func (f *Fleet) process(i int, eid snapshot.EnvID, uid snapshot.UID, user snapshot.Username, devices ...snapshot.DeviceIndex) snapshot.Process {
	f.nextPID[i] += snapshot.PID(1 + f.random.IntN(40))
	p := snapshot.Process{
		PID: f.nextPID[i], Start: snapshot.StartTime(f.now.Unix()*100 + int64(f.random.IntN(100))), UID: &uid, Username: user,
		EID: eid, Inherited: eid, Name: "python3", Command: fmt.Sprintf("python3 train.py --secret %d", f.random.Uint32()),
	}
	for _, d := range devices {
		p.Usage = append(p.Usage, snapshot.DeviceUsage{Index: d, Memory: snapshot.MiB(int64(500 + f.random.IntN(20_000)))})
	}
	return p
}

func (f *Fleet) user() (snapshot.UID, snapshot.Username) {
	n := f.random.IntN(60)
	return snapshot.UID(1000 + n), snapshot.Username(fmt.Sprintf("user%02d", n))
}

// start makes an environment with an attached device and a process, or starts another process in
// one.
func (f *Fleet) start(i int, s *snapshot.Snapshot) {
	if len(s.Environments) > f.devices {
		e := &s.Environments[f.random.IntN(len(s.Environments))]
		f.add(s, f.process(i, e.EID, e.UID, e.Username, s.AttachedTo(e.EID)...))
		return
	}
	uid, user := f.user()
	f.nextPID[i]++
	e := snapshot.Environment{EID: snapshot.EnvID(fmt.Sprint(f.nextPID[i])), UID: uid, Username: user, Creation: f.date(), PIDs: []snapshot.PID{f.nextPID[i]}}
	if f.random.IntN(2) == 0 {
		e.Config.Name = "training"
	}
	s.Environments = append(s.Environments, e)
	d := snapshot.DeviceIndex(f.random.IntN(f.devices))
	f.attachTo(s, d, &e)
	f.add(s, f.process(i, e.EID, uid, user, d))
}

func (f *Fleet) add(s *snapshot.Snapshot, p snapshot.Process) {
	if len(p.Usage) > 0 {
		s.Processes = append(s.Processes, p)
	}
}

func (f *Fleet) date() snapshot.Date { return snapshot.DateOf(f.now.In(time.FixedZone("", 3600))) }

func (f *Fleet) attachTo(s *snapshot.Snapshot, d snapshot.DeviceIndex, e *snapshot.Environment) {
	device := s.Device(d)
	if device.Attachment(e.EID) != nil {
		return
	}
	a := snapshot.Attachment{EID: e.EID, Time: f.date()}
	if f.random.IntN(3) == 0 {
		a.GPUMemory = snapshot.MustMemory("12g")
	}
	device.Attachments = append(slices.Clone(device.Attachments), a)
}

// stray starts a process outside any environment, or on a device that isn't attached.
func (f *Fleet) stray(i int, s *snapshot.Snapshot) {
	uid, user := f.user()
	eid := snapshot.EnvID("")
	if len(s.Environments) > 0 && f.random.IntN(2) == 0 {
		e := &s.Environments[f.random.IntN(len(s.Environments))]
		eid, uid, user = e.EID, e.UID, e.Username
	}
	f.add(s, f.process(i, eid, uid, user, snapshot.DeviceIndex(f.random.IntN(f.devices))))
}

func (f *Fleet) end(s *snapshot.Snapshot) {
	if len(s.Processes) > 0 {
		i := f.random.IntN(len(s.Processes))
		s.Processes = slices.Delete(s.Processes, i, i+1)
	}
}

func (f *Fleet) attach(s *snapshot.Snapshot) {
	if len(s.Environments) > 0 {
		f.attachTo(s, snapshot.DeviceIndex(f.random.IntN(f.devices)), &s.Environments[f.random.IntN(len(s.Environments))])
	}
}

func (f *Fleet) detach(s *snapshot.Snapshot) {
	d := &s.Devices[f.random.IntN(len(s.Devices))]
	if len(d.Attachments) > 0 {
		d.Attachments = slices.Clone(d.Attachments[1:])
	}
}

// leave ends an environment, with its processes and attachments.
func (f *Fleet) leave(s *snapshot.Snapshot) {
	if len(s.Environments) == 0 {
		return
	}
	i := f.random.IntN(len(s.Environments))
	eid := s.Environments[i].EID
	s.Environments = slices.Delete(s.Environments, i, i+1)
	s.Processes = slices.DeleteFunc(s.Processes, func(p snapshot.Process) bool { return p.EID == eid })
	for k := range s.Devices {
		d := &s.Devices[k]
		d.Attachments = slices.DeleteFunc(slices.Clone(d.Attachments), func(a snapshot.Attachment) bool { return a.EID == eid })
	}
}

// Remove ends a process, and Detach removes an attachment, as a controller does.
func (f *Fleet) Remove(host snapshot.Hostname, pid snapshot.PID) {
	s := f.on(host)
	s.Processes = slices.DeleteFunc(s.Processes, func(p snapshot.Process) bool { return p.PID == pid })
}

// Detach is described with Remove.
func (f *Fleet) Detach(host snapshot.Hostname, index snapshot.DeviceIndex, eid snapshot.EnvID) {
	d := f.on(host).Device(index)
	d.Attachments = slices.DeleteFunc(slices.Clone(d.Attachments), func(a snapshot.Attachment) bool { return a.EID == eid })
}

func (f *Fleet) on(host snapshot.Hostname) *snapshot.Snapshot {
	i := slices.IndexFunc(f.Hosts, func(h snapshot.Host) bool { return h.Name == host })
	f.Hosts[i].Snapshot = f.copy(f.Hosts[i].Snapshot)
	return f.Hosts[i].Snapshot
}

// Labels changes a label of a host.
func (f *Fleet) Labels(i int, key, value string) {
	labels := maps.Clone(f.Hosts[i].Labels)
	labels[key] = value
	f.Hosts[i].Labels = labels
}
