// Package system answers what the state files don't say: which processes and Jupyter
// kernels live and whose they are, in which namespaces and since which boot this program
// runs, what users are called, and whose subordinate uids are.
//
//	s := system.New("/proc")
//	gone := s.Process(pid).Liveness == system.Gone
//
// What can't be known is Unknown, and never Gone. It changes nothing, and knows nothing of
// how the state files are stored: see package disk.
package system
