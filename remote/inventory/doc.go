// Package inventory reads which hosts there are and which of them are selected:
// from the values of -H and -x, a host file, and hosts.yaml.
//
//	hosts, err := inventory.Load(inventory.Selection{
//		Hosts:        []string{"gpu-[01-04],@h100"},
//		Exclude:      []string{"gpu-03"},
//		DefaultFiles: inventory.DefaultFiles(os.Getenv),
//	}, open)
//
// # Names and files
//
// A host is written [user@]name[:port]; a name may hold ranges of numbers,
// gpu-[01-16].lab or node[1,3,5-8], and an IPv6 address that is followed by a
// port is in brackets, [::1]:22. @group is the hosts of a group. An item of -H
// that ends in .yaml or .yml, or that contains a slash, is a file.
//
// YAML files are the inventory: they list all hosts. -H and a plain host file (one
// host per line, # comments) select some of them; without these, all are
// selected. If YAML files are given, each selected name must be in one of them, so
// that a misspelt name is an error; otherwise any name is accepted.
//
// Without a YAML file, names and groups are looked up in the first of
// Selection.DefaultFiles that exists. It provides the settings of its hosts; other
// hosts are accepted too.
//
// Host names are compared without regard to case, like DNS names. A host that is
// named twice is selected once; two different users or ports are an error.
//
// The package opens no connection, resolves no name, and doesn't read ssh_config:
// remote/sshclient does.
package inventory
