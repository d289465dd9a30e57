package sshd

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// Dana is a person whose account comes from a directory of Windows, as winbind names it.
const Dana = `CORP\dana`

// accounts are people who use GPUs, and an administrator's login for each of the Rights.
var accounts = append([]string{
	"alice", "bob", "carol", string(MaySudo), string(NeedsPassword), string(NotInSudoers), string(NoSudo),
	string(NoGenv), string(OnlyUsage), string(OnlyUsageBefore), string(OnlySnapshot), string(OnlyUsageNoGenv),
	string(MaySudo143), string(AllOfGenv), Dana, string(FromDirectory), string(NeedsTTY),
}, sitePeople...)

// sitePeople are those of the rules of sites. The controller's machine knows them, too, with the group chem.
var sitePeople = []string{"kim", "lee", "gus", "eve", "fay", "xia", "yan", "zoe", "ada", "bo"}

const firstUID = 60801 // in a range that neither distributions nor systemd assign (https://systemd.io/UIDS-GIDS)

// UID is the user id of one of the fleet's accounts: a person, root or an
// administrator's login. It is the group id, too.
func UID(user string) (snapshot.UID, error) {
	if user == "root" {
		return 0, nil
	}
	if i := slices.Index(accounts, user); i >= 0 {
		return snapshot.UID(firstUID + i), nil
	}
	return 0, fmt.Errorf("the fleet has no user %q: there are %s", user, strings.Join(accounts, ", "))
}

// account finds the account under which a user's jobs run.
func (f *Fleet) account(user string) (testfleet.Account, error) {
	uid, err := UID(user)
	return testfleet.Account{UID: uid, Home: f.home(user)}, err
}

// Where programs are; a genv that is installed on the machine itself would be below /usr/local.
const (
	pathWithoutLocal = "/usr/sbin:/usr/bin:/sbin:/bin"
	systemPath       = "/usr/local/sbin:/usr/local/bin:" + pathWithoutLocal
)

// sudoers leaves no traces on the machine: no syslog, no mail, no time stamps.
const sudoers = `Defaults !syslog, !mail_badpass, !mail_no_user, !mail_no_host, !mail_no_perms
Defaults lecture=never, timestampdir=%[1]s/sudo-ts
Defaults env_keep += "GENV_TMPDIR GENV_SIM_GPUS GENV_SIM_FAULT GENV_AUDIT_LOG GENV_ROOT_DIR GENV_DEV_DIR"
Defaults secure_path="%[1]s/bin:%[1]s/driver:` + systemPath + `"
Defaults:` + string(NoGenv+","+OnlyUsageNoGenv) + ` secure_path="%[1]s/driver:` + pathWithoutLocal + `"
Defaults:` + string(MaySudo143) + ` secure_path="%[1]s/bin143:%[1]s/driver:` + systemPath + `"
Defaults:` + string(NeedsTTY) + ` requiretty
root ALL=(ALL:ALL) ALL
` + string(MaySudo+","+MaySudo143+","+NoGenv+","+NeedsTTY) + ` ALL=(ALL:ALL) NOPASSWD: ALL
` + string(NeedsPassword) + ` ALL=(ALL:ALL) ALL
` + string(OnlySnapshot) + ` ALL=(root) NOPASSWD: %[1]s/bin/genv usage snapshot
` + string(AllOfGenv) + ` ALL=(root) NOPASSWD: %[1]s/bin/genv
`

// Password is sudo's for the login NeedsPassword, and passwordHash what /etc/shadow has of it.
const (
	Password     = "correct horse"
	passwordHash = "$6$genvfleet$bZREFgZP.2S2sNxQitvFQxoA7mAC.uWHAFkr3LnOtuRQzRrcE21aq2aqsMq/KOY5haqaOjYEVx/xyGWNHiEDW1"
)

// accountFiles are the files with root and these users, with which sudo works, with the ordinary user of a test, and
// with postgres, as which tests run a database: initdb(1) refuses root, and a user without a name.
func accountFiles(users []string, home func(user string) string) []etcFile {
	passwd := "root:x:0:0:root:/root:/bin/sh\nsshd:x:60800:60800::/run/sshd:/usr/sbin/nologin\npostgres:x:60799:60799::/:/usr/sbin/nologin\n"
	passwd += fmt.Sprintf("me:x:%[1]d:%[1]d::/:/bin/sh\n", proctest.OrdinaryUID)
	group := "root:x:0:\ntty:x:5:\nsshd:x:60800:\npostgres:x:60799:\nchem:x:60790:kim,lee\n"
	shadow := "root:*:19000:0:99999:7:::\nsshd:*:19000:0:99999:7:::\n"
	for _, name := range users {
		uid := firstUID + slices.Index(accounts, name)
		passwd += fmt.Sprintf("%s:x:%d:%d::%s:/bin/bash\n", name, uid, uid, home(name))
		group += fmt.Sprintf("%s:x:%d:\n", name, uid)
		secret := "*"
		if name == string(NeedsPassword) {
			secret = passwordHash
		}
		shadow += name + ":" + secret + ":19000:0:99999:7:::\n"
	}
	return []etcFile{
		{"passwd", 0o644, passwd},
		{"group", 0o644, group},
		{"shadow", 0o600, shadow},
		{"nsswitch.conf", 0o644, "passwd: files\ngroup: files\nshadow: files\nhosts: files\nsudoers: files\n"},
		{"pam.d/sudo", 0o644, "auth required pam_unix.so\naccount required pam_permit.so\nsession required pam_permit.so\n"},
	}
}

// writeAccounts writes users, groups and sudo's rules, with a home folder for each user, and returns what they cover.
func (f *Fleet) writeAccounts() ([]cover, error) {
	for i, name := range accounts {
		if err := os.MkdirAll(f.home(name), 0o755); err != nil {
			return nil, err
		}
		if err := os.Chown(f.home(name), firstUID+i, firstUID+i); err != nil {
			return nil, err
		}
	}
	directory, err := UID(string(FromDirectory))
	if err != nil {
		return nil, err
	}
	rules := fmt.Sprintf(sudoers, f.Dir) +
		remote.SudoersLine(fmt.Sprintf("#%d", directory), filepath.Join(f.bin(), "genv")) + "\n" +
		remote.SudoersLine(string(OnlyUsage), filepath.Join(f.bin(), "genv")) + "\n" +
		remote.SudoersLine(string(OnlyUsageBefore), filepath.Join(f.bin(), "genv")) + " *\n" +
		remote.SudoersLine(string(OnlyUsageNoGenv), remote.DefaultGenv) + "\n"
	if f.options.Installable {
		rules += "@includedir /etc/sudoers.d\n"
	}
	covers, err := writeEtc(f.Dir, append(accountFiles(accounts, f.home), etcFile{"sudoers", 0o440, rules}))
	if err != nil || !f.options.Installable {
		return covers, err
	}
	for _, c := range []cover{
		{f.Local(), "/usr/local"}, {f.SudoersFolder(), "/etc/sudoers.d"}, {filepath.Join(f.Dir, "lib"), "/var/lib"},
	} {
		if err := os.MkdirAll(c.Source, 0o755); err != nil {
			return nil, err
		}
		covers = append(covers, c)
	}
	return covers, os.Mkdir(filepath.Join(f.Local(), "bin"), 0o755)
}

// Local is the hosts' /usr/local, and SudoersFolder their /etc/sudoers.d, if the fleet is Installable.
func (f *Fleet) Local() string { return filepath.Join(f.Dir, "local") }

// SudoersFolder is described at Local.
func (f *Fleet) SudoersFolder() string { return filepath.Join(f.Dir, "etc", "sudoers.d") }

type etcFile struct {
	name string // below /etc
	mode os.FileMode
	text string
}

// writeEtc writes files below dir/etc. A file that the machine lacks cannot be covered, and need not be.
func writeEtc(dir string, files []etcFile) ([]cover, error) {
	var covers []cover
	for _, f := range files {
		c := cover{Source: filepath.Join(dir, "etc", f.name), Target: filepath.Join("/etc", f.name)}
		if err := os.MkdirAll(filepath.Dir(c.Source), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(c.Source, []byte(f.text), f.mode); err != nil {
			return nil, err
		}
		if _, err := os.Stat(c.Target); err == nil {
			covers = append(covers, c)
		}
	}
	return covers, nil
}
