package proc_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

const key = "GENV_ENVIRONMENT_ID"

func TestParseEnviron(t *testing.T) {
	for name, row := range map[string]struct {
		data, value   string
		found, intact bool
	}{
		"there":                  {"A=1\x00" + key + "=1667\x00B=2\x00", "1667", true, true},
		"there, last":            {"A=1\x00" + key + "=1667\x00", "1667", true, true},
		"there and empty":        {key + "=\x00", "", true, true},
		"with = in it":           {key + "=a=b\x00", "a=b", true, true},
		"not UTF-8":              {key + "=\xff\xfe\x00", "\xff\xfe", true, true},
		"with a newline":         {"A=1\n" + key + "=x\x00" + key + "=1667\x00", "1667", true, true},
		"twice: the first":       {key + "=1\x00" + key + "=2\x00", "1", true, true},
		"absent":                 {"A=1\x00B=2\x00", "", false, true},
		"another's prefix":       {key + "S=1\x00", "", false, true},
		"another's suffix":       {"X" + key + "=1\x00", "", false, true},
		"inside another's value": {"A=" + key + "=1\x00", "", false, true},
		"a function of bash":     {"BASH_FUNC_module%%=() {  eval $x;\n}\x00" + key + "=1667\x00", "1667", true, true},
		"an older one":           {"BASH_FUNC_module()=() {  eval $x;\n}\x00" + key + "=1667\x00", "1667", true, true},
		"names of other tools":   {"a.b=1\x00npm_config_x-y=1\x00ProgramFiles(x86)=x\x00Ä=1\x00_=/bin/x\x00", "", false, true},
		"values with spaces":     {"PS1=\\u $ \x00LS_COLORS=a=1:b=2\x00E=\x00", "", false, true},

		"nothing":                     {"", "", false, false},
		"only ends":                   {"\x00\x00\x00", "", false, false},
		"not ended":                   {"A=1\x00" + key + "=1667", "", false, false},
		"a title's end":               {"n.py --epochs 3\x00\x00\x00\x00", "", false, false},
		"a title's end with =":        {"n.py --lr=0.1\x00\x00\x00\x00", "", false, false},
		"an option with =":            {"--lr=0.1\x00\x00\x00\x00", "", false, false},
		"an option that fits":         {"--lr=0.1\x00A=1\x00", "", false, false},
		"a name that fits":            {"lr=0.1\x00\x00A=1\x00", "", false, false},
		"a title of words that fits":  {"train lr=0.1\x00" + key + "=1667\x00", "", false, false},
		"filled with spaces":          {"lr=0.1          \x00epoch 3 of x=9\x00", "", false, false},
		"after a title's end":         {"n.py\x00" + key + "=1667\x00", "", false, false},
		"before a title's end":        {key + "=1667\x00n.py\x00", "", false, false},
		"before NULs":                 {key + "=1667\x00\x00\x00", "", false, false},
		"before one empty entry":      {key + "=1667\x00\x00", "", false, false},
		"after empty entries":         {"\x00\x00" + key + "=1667\x00", "", false, false},
		"an entry without =":          {"A=1\x00" + key + "\x00", "", false, false},
		"an entry without a name":     {"A=1\x00=x\x00", "", false, false},
		"a control character in name": {"A\n=1\x00", "", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			value, found, intact := proc.ParseEnviron([]byte(row.data), key)
			require.Equal(t, []any{row.value, row.found, row.intact}, []any{value, found, intact})
		})
	}
}

// requireEnviron: the process was certainly started in environment 1667.
func requireEnviron(t *testing.T, fs proc.FS, pid snapshot.PID) {
	t.Helper()
	value, found, err := fs.Environ(pid, key)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, "1667", value)
}

func TestEnvironDistinguishesAbsentFromUnknown(t *testing.T) {
	fs := mount(t)
	add(t, fs, 10, map[string]string{"environ": "A=1\x00"})
	add(t, fs, 11, map[string]string{"stat": statLine(11, "x", "S", 1, 0, 1, 5), "environ": ""})
	add(t, fs, 12, map[string]string{"stat": statLine(12, "x", "S", 1, 0, 1, 5), "environ": strings.Repeat("A=1\x00", 9<<18)})
	_, found, err := fs.Environ(10, key)
	require.NoError(t, err)
	require.False(t, found)
	_, _, err = fs.Environ(11, key)
	require.ErrorIs(t, err, proc.ErrUnreadable)
	_, _, err = fs.Environ(12, key)
	require.ErrorIs(t, err, proc.ErrUnreadable)
	require.ErrorIs(t, err, proc.ErrOverwritten)
	_, _, err = fs.Environ(13, key)
	require.ErrorIs(t, err, proc.ErrGone)
}

// A real process that was started without an environment is certain to be in none.
func TestEnvDashI(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	cmd.Env = []string{}
	pid := running(t, cmd)
	// In the middle of execve(2) there is no environment to see yet: that is unknown, for a moment.
	require.Eventually(t, func() bool {
		_, found, err := proc.FS{}.Environ(pid, key)
		return err == nil && !found
	}, 10*time.Second, time.Millisecond)
}

// What execve(2) lets in is read whole.
func TestALongEnvironIsReadToItsEnd(t *testing.T) {
	fs := mount(t)
	add(t, fs, 10, map[string]string{"environ": "LONG=" + strings.Repeat("x", 6<<20) + "\x00" + key + "=1667\x00"})
	requireEnviron(t, fs, 10)
}

func TestEnvironOfAnotherUserIsUnknown(t *testing.T) {
	var err error
	look := func() { _, _, err = proc.FS{}.Environ(1, key) }
	if os.Geteuid() == 0 {
		asNobody(t, look)
	} else {
		look()
	}
	require.ErrorIs(t, err, proc.ErrUnreadable)
	require.NotErrorIs(t, err, proc.ErrGone)
}

// A kernel thread, on machines where a test can see one.
func TestAKernelThreadHasNoEnvironment(t *testing.T) {
	stat, err := proc.FS{}.Stat(2)
	if err != nil || !stat.IsKernelThread() {
		t.Skip("no kernel thread is visible here: this is a PID namespace")
	}
	_, _, err = proc.FS{}.Environ(2, key)
	require.ErrorIs(t, err, proc.ErrUnreadable)
}

// What is not a file cannot be read, which is not the same as absent.
func TestWhatIsNoFileIsUnreadable(t *testing.T) {
	fs := mount(t)
	add(t, fs, 10, nil)
	require.NoError(t, syscall.Mkdir(filepath.Join(fs.Root, "10", "environ"), 0o755))
	_, _, err := fs.Environ(10, key)
	require.ErrorIs(t, err, proc.ErrUnreadable)
}

func FuzzParseEnviron(f *testing.F) {
	f.Add([]byte("A=1\x00"+key+"=1667\x00"), key)
	f.Add([]byte("\x00\x00"), key)
	f.Add([]byte(key+"=\xff\x00"), key)
	f.Add([]byte("n.py --lr=1\x00\x00\x00"), key)
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		value, found, intact := proc.ParseEnviron(data, name)
		if !intact {
			require.False(t, found)
		}
		if !found {
			require.Empty(t, value)
			return
		}
		require.Contains(t, "\x00"+string(data), "\x00"+name+"="+value+"\x00")
		for _, entry := range strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00") {
			require.Greater(t, strings.Index(entry, "="), 0)
		}
		for _, tail := range []string{"\x00", "title\x00", "x"} { // whatever a title leaves
			_, found, intact := proc.ParseEnviron(append(data[:len(data):len(data)], tail...), name)
			require.False(t, found || intact)
		}
	})
}

func TestAProcessWithoutMemoryIsNotGone(t *testing.T) {
	fs := mount(t)
	add(t, fs, 10, map[string]string{"stat": statLine(10, "python3", "Z", 1, 0, 4, 500)}) // without environ
	add(t, fs, 11, map[string]string{"stat": statLine(11, "python3", "Z", 1, 0, 1, 500)})
	_, _, err := fs.Environ(10, key)
	require.ErrorIs(t, err, proc.ErrUnreadable)
	_, _, err = fs.Environ(11, key)
	require.ErrorIs(t, err, proc.ErrGone)
}

// If the first thread of a process has ended, the environment is read from the other
// threads, so that ending the first one does not hide it.
func TestEnvironOfAProcessWithoutItsFirstThread(t *testing.T) {
	fs := mount(t)
	add(t, fs, 10, map[string]string{
		"stat":            "10 (train) Z" + strings.Repeat(" 1", 16) + " 2 0 77" + strings.Repeat(" 0", 29),
		"environ":         "",
		"task/10/environ": "",
		"task/11/environ": key + "=1667\x00",
	})
	requireEnviron(t, fs, 10)
}
