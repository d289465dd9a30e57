// Package hostpattern reads host names with ranges of numbers in them:
//
//	gpu-[01-16].lab      16 names, padded as the range's first number is
//	node[1,3,5-8]        six names
//	rack[1-2]-gpu[1-4]   eight names, the last range running fastest
//
//	p, err := hostpattern.Parse("gpu-[01-16].lab")
//	for _, name := range p.Expand() { … }
//
// A pattern stands for a limited number of names, so that expanding one is
// always safe. The package knows no users, ports or groups, and resolves no
// name. Names are compared without regard to case, as DNS does (RFC 4343).
package hostpattern
