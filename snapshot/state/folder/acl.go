package folder

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// An access control list as the kernel takes it, see posix_acl.h and
// posix_acl_xattr.h in include/uapi/linux: the version, then the entries.
const (
	aclVersion  = 2
	aclUserObj  = 0x01
	aclUser     = 0x02
	aclGroupObj = 0x04
	aclMask     = 0x10
	aclOther    = 0x20
	aclRead     = 4
	aclWrite    = 2
	aclNoID     = 0xffffffff
)

type aclEntry struct {
	tag, permissions uint16
	id               uint32
}

// AllowToRead lets one user read a file of ours, besides its owner.
func AllowToRead(path string, uid uint32) error {
	acl, err := binary.Append(binary.LittleEndian.AppendUint32(nil, aclVersion), binary.LittleEndian, []aclEntry{
		{aclUserObj, aclRead | aclWrite, aclNoID},
		{aclUser, aclRead, uid},
		{aclGroupObj, 0, aclNoID},
		{aclMask, aclRead, aclNoID},
		{aclOther, 0, aclNoID},
	})
	if err == nil {
		err = unix.Lsetxattr(path, "system.posix_acl_access", acl, 0)
	}
	if err != nil {
		return fmt.Errorf("let the user read it: %w", err)
	}
	return nil
}
