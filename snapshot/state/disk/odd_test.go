package disk_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAnOddAttachmentIsNotNone: what one wrong character of devices.json hides comes back from root's copy.
func TestAnOddAttachmentIsNotNone(t *testing.T) {
	for name, change := range map[string][2]string{
		"an id that is a number":   {`"eid": "1102"`, `"eid": 1102`},
		"an id under another key":  {`"eid": "1102"`, `"id": "1102"`},
		"an index that is a text":  {`"index": 0`, `"index": "0"`},
		"an id that can't be read": {`"eid": "1102"`, `"eid": ""`},
	} {
		t.Run(name, func(t *testing.T) {
			store, _, dir, _ := kept(t)
			data, err := os.ReadFile(filepath.Join(dir, "devices.json"))
			require.NoError(t, err)
			changed := strings.Replace(string(data), change[0], change[1], 1)
			require.NotEqual(t, string(data), changed, "the row changes nothing")
			put(t, dir, "devices.json", changed)
			files, err := store.Read(t.Context())
			require.NoError(t, err)
			require.Equal(t, indices{0}, files.AttachedTo("1102"))
			require.Len(t, files.Restorations, 1)
		})
	}
}
