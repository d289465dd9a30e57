package system

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
)

// accountWithin is how long an account is looked for while others wait for their turn.
const accountWithin = 2 * time.Second

// Username returns the name of a uid, or "" if it has none or that is unknown.
func Username(ctx context.Context, uid snapshot.UID) snapshot.Username {
	ctx, cancel := context.WithTimeout(ctx, accountWithin)
	defer cancel()
	account, _ := nss.Passwd{}.WithUID(ctx, uid)
	return account.Username()
}

// FirstUID is the first uid of people, UID_MIN of login.defs(5): lower ones are those of system accounts.
var FirstUID = sync.OnceValue(func() snapshot.UID {
	data, _ := os.ReadFile("/etc/login.defs") // without it the usual one holds
	return firstUID(string(data))
})

func firstUID(loginDefs string) snapshot.UID {
	const usual = 1000
	for line := range strings.Lines(loginDefs) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == "UID_MIN" {
			if n, err := strconv.ParseUint(fields[1], 0, 32); err == nil && n > 0 {
				return snapshot.UID(n)
			}
		}
	}
	return usual
}

// DescribeUser is a uid with its name in /etc/passwd. A directory service is not asked, since the lock is held.
func DescribeUser(uid uint32) string {
	account, _ := nss.Passwd{}.Local(snapshot.UID(uid))
	if name := account.Username(); name != "" {
		return fmt.Sprintf("uid %d (%s)", uid, name)
	}
	return fmt.Sprintf("uid %d", uid)
}
