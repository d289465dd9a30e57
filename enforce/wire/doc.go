// Package wire writes and reads reports, as controllers send them to hosts: in the
// format of genv 1.4.3, and in the native one, which carries all that is known.
//
//	data, err := wire.EncodeNative(report)
//	report, err := wire.DecodeNative(data)
//
// Everything that is read is checked; an error wraps snapshot.ErrInvalid, and then
// nothing of the report may be carried out.
package wire
