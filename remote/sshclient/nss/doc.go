// Package nss finds addresses and users as other programs of this machine do: by
// nsswitch.conf(5), which may name mDNS, sssd or LDAP. A program without cgo only
// reads /etc/hosts, asks DNS and reads /etc/passwd. What it doesn't find there,
// this package asks getent(1), which every glibc system has.
//
//	names := nss.New()
//	addresses, err := names.Addresses(ctx, "ip", "printer.local")
//	user, err := names.UserOf(ctx, os.Getuid())
//
// Answers of getent are kept for a few seconds. Where there is no getent, or it
// doesn't answer in time, the result is that of Go's own search.
package nss
