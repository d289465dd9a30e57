package enforce

// join adds what users have on the hosts of a part that comes after those in all. No host is in both.
func (all *allocations) join(part *allocations) {
	hosts, processes := len(all.hosts), len(all.processes)
	all.Hosts, all.hosts = append(all.Hosts, part.Hosts...), append(all.hosts, part.hosts...)
	for i := range part.Processes {
		part.Processes[i].Host += hosts
	}
	all.Processes, all.processes = append(all.Processes, part.Processes...), append(all.processes, part.processes...)
	for _, u := range part.inOrder {
		u.shift(hosts, processes)
		known := all.byUser[u.Name]
		if known == nil || known.last == nil { // the first ones that are counted
			all.byUser[u.Name] = u
			all.inOrder = append(all.inOrder, u)
			continue
		}
		known.Hosts += u.Hosts
		known.Envs, known.Devices = append(known.Envs, u.Envs...), append(known.Devices, u.Devices...)
	}
}

// shift moves the indices of what a user has, as so many hosts and processes come before.
func (u *allocation) shift(hosts, processes int) {
	u.First += hosts
	for i := range u.Envs {
		u.Envs[i].Host += hosts
		for _, loss := range u.Envs[i].Loses {
			for k := range loss.Processes {
				loss.Processes[k] += processes
			}
		}
	}
	for _, d := range u.Devices {
		d.Host += hosts
		for k := range d.Processes {
			d.Processes[k].Process += processes
		}
	}
}
