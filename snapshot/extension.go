package snapshot

import (
	"cmp"
	"fmt"
	"time"
)

// Extension is a user's request to keep an attachment for longer than the policy allows
// (`genv extend`). It is about this one attachment: one that was made at another time
// needs another request.
type Extension struct {
	// ID is chosen by whoever asks. A request with another ID is another request.
	ID       string
	UID      UID // of the user who asks, as the kernel reports it
	EID      EnvID
	Index    DeviceIndex
	Attached Date // the Time of the attachment
	For      time.Duration
}

// maxExtensions is how many requests a host may report, and MaxExtension the longest.
const (
	maxExtensions = 4096
	MaxExtension  = 365 * 24 * time.Hour
)

// maxExtensionID is the maximum length of an ID, in bytes: a controller remembers it.
const maxExtensionID = 64

// Extends says whether a request is about an attachment of an environment. The environment
// must be registered for the user who asks, and its processes must be that user's.
func (x *Extension) Extends(env *Environment, index DeviceIndex, attached Date) bool {
	return !env.OwnerMismatch && env.UID == x.UID && env.EID == x.EID && index == x.Index && attached == x.Attached
}

// nativeExtension is a request in a native snapshot, and in the file of its user.
type nativeExtension struct {
	ID       string       `json:"id"`
	UID      UID          `json:"uid"`
	EID      EnvID        `json:"eid"`
	Index    *DeviceIndex `json:"device"`
	Attached string       `json:"attached"`
	Seconds  int64        `json:"seconds"`
}

// EncodeExtensions writes requests as JSON, for the file of a user.
func EncodeExtensions(list []Extension) ([]byte, error) { return Marshal(nativeExtensions(list)) }

// DecodeExtensions reads what EncodeExtensions writes. It checks every field; its error
// wraps ErrInvalid.
func DecodeExtensions(data []byte) ([]Extension, error) {
	var list []nativeExtension
	if err := unmarshalBounded(data, &list); err != nil {
		return nil, err
	}
	return extensionsFromWire(list)
}

// nativeExtensions is nil for nil: the host doesn't report requests.
func nativeExtensions(list []Extension) []nativeExtension {
	if list == nil {
		return nil
	}
	out := make([]nativeExtension, 0, len(list))
	for i := range list {
		x := &list[i]
		out = append(out, nativeExtension{x.ID, x.UID, x.EID, &x.Index, x.Attached.String(), int64(x.For / time.Second)})
	}
	return out
}

func extensionsFromWire(list []nativeExtension) ([]Extension, error) {
	if list == nil {
		return nil, nil
	}
	type about struct {
		uid    UID
		eid    EnvID
		device DeviceIndex
	}
	return fromWire(list, "extension", maxExtensions, nativeExtension.extension, func(x Extension) about { return about{x.UID, x.EID, x.Index} })
}

func (n nativeExtension) extension() (Extension, error) {
	attached, badDate := dateFromWire("attached", n.Attached)
	var badTime error
	if n.Seconds < 1 || n.Seconds > int64(MaxExtension/time.Second) {
		badTime = fmt.Errorf("%w: an extension of %d seconds", ErrInvalid, n.Seconds)
	}
	var badID error
	if len(n.ID) > maxExtensionID {
		badID = fmt.Errorf("%w: the id of an extension is longer than %d bytes", ErrInvalid, maxExtensionID)
	}
	err := cmp.Or(badID, checkID("id", n.ID), checkID("eid", string(n.EID)), checkIndex(n.Index), badDate, badTime)
	if err != nil {
		return Extension{}, err
	}
	return Extension{n.ID, n.UID, n.EID, orZero(n.Index), attached, time.Duration(n.Seconds) * time.Second}, nil
}
