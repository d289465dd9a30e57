// Package guardtest runs the tests of a package where they may guard devices: in a mount
// namespace of their own, with device nodes, a bpffs and cgroup2, of which nothing is seen
// outside. No test attaches anything to the root cgroup of the machine.
//
//	func TestMain(m *testing.M) { os.Exit(guardtest.Main(m, nil)) }
//	func TestX(t *testing.T) { guardtest.Need(t); cgroup := filepath.Join(guardtest.Place(), "cgroup", …) }
package guardtest
