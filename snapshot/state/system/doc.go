// Package system answers what the state files don't say: which processes and Jupyter
// kernels live and who owns them, in which namespaces and since which boot this program runs,
// the names of users, and the owners of subordinate uids.
//
//	s := system.New("/proc")
//	gone := s.Process(pid).Liveness == system.Gone
//
// What can't be known is Unknown, and never Gone. It changes nothing, and knows nothing of
// how the state files are stored: see package disk.
package system
