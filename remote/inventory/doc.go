// Package inventory turns what an administrator writes about a fleet into
// hosts: the values of -H, a host file, and hosts.yaml.
//
//	hosts, err := inventory.Load(inventory.Selection{
//		Hosts:        []string{"gpu-[01-04],@h100"},
//		Exclude:      []string{"gpu-03"},
//		DefaultFiles: inventory.DefaultFiles(os.Getenv),
//	}, inventory.OpenFile)
//
// # Names and files
//
// A host is written [user@]name[:port]; a name may hold ranges of numbers,
// gpu-[01-16].lab or node[1,3,5-8], and an IPv6 address that is followed by a
// port stands in brackets, [::1]:22. @group stands for the hosts of a group. An
// item of -H that ends in .yaml or .yml, or that holds a slash, is a file.
//
// YAML files are the inventory: they say which hosts there are. -H, and a plain
// host file (one host a line, # comments), say which of them are meant. When
// they name nothing, all hosts of the files are meant. When they do, each name
// must be in a file that was given with it, so that a misspelt name does not
// pass for a host of its own; without such a file any name will do.
//
// A name or group that is used without a YAML file is looked up in the first
// of Selection.DefaultFiles that exists. It gives its settings to the hosts it
// knows, and forbids no others.
//
// Host names are compared without regard to case, as DNS does. A host that is
// named twice counts once; two different users or ports for it are an error.
//
// The package opens no connection and resolves no name. What ssh_config says
// about a host is the business of remote/sshclient.
package inventory
