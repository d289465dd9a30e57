package proc_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

func TestParseUID(t *testing.T) {
	for name, row := range map[string]struct {
		text string
		want snapshot.UID
	}{
		"a user":                {statusText("sh", 1001), 1001},
		"root":                  {statusText("sh", 0), 0},
		"the highest":           {statusText("sh", 4294967294), 4294967294},
		"set-uid: the real one": {"Name:\tsu\nUid:\t1001\t0\t0\t0\n", 1001},
		"a name that lies":      {"Name:\tx\\nUid:\\t0\\t0\\t0\\t0\nUid:\t1001\t1001\t1001\t1001\n", 1001},
	} {
		t.Run(name, func(t *testing.T) {
			uid, err := proc.ParseUID([]byte(row.text))
			require.NoError(t, err)
			require.Equal(t, row.want, uid)
		})
	}
}

func TestParseUIDRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":       "",
		"no uid":        "Name:\tsh\nGid:\t0\t0\t0\t0\n",
		"cut":           "Name:\tsh\nUid:\t10",
		"negative":      "Uid:\t-1\t0\t0\t0\n",
		"beyond 32 bit": "Uid:\t4294967296\t0\t0\t0\n",
		"a word":        "Uid:\troot\t0\t0\t0\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := proc.ParseUID([]byte(text))
			require.Error(t, err)
		})
	}
}

func TestUIDOfOneProcess(t *testing.T) {
	fs := mount(t)
	add(t, fs, 10, map[string]string{"status": statusText("sh", 1001)})
	add(t, fs, 11, map[string]string{"status": "rubbish"})
	uid, err := fs.UID(10)
	require.NoError(t, err)
	require.Equal(t, snapshot.UID(1001), uid)
	_, err = fs.UID(11)
	require.ErrorIs(t, err, proc.ErrUnreadable)
	_, err = fs.UID(12)
	require.ErrorIs(t, err, proc.ErrGone)
}

func FuzzParseUID(f *testing.F) {
	f.Add([]byte(statusText("sh", 1001)))
	f.Add([]byte("Uid:\t-1\t0\t0\t0\n"))
	f.Add([]byte("Uid:"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if uid, err := proc.ParseUID(data); err != nil {
			require.Zero(t, uid)
		}
	})
}
