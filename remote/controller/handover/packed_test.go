package handover_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed-3119e985/genv/remote/controller/handover"
)

// Documents of many goroutines don't mix.
func TestDocuments(t *testing.T) {
	var work errgroup.Group
	for i := range 8 {
		work.Go(func() error {
			for n := range 10 {
				want := strings.Repeat(fmt.Sprint("user ", i, " "), n)
				data, err := handover.Pack(map[string]string{"text": want})
				if err != nil {
					return err
				}
				var read map[string]string
				if err := handover.UnpackWithin(data, 1<<20, &read); err != nil || read["text"] != want {
					return fmt.Errorf("%w: %s instead of %s", err, read, want)
				}
			}
			return nil
		})
	}
	require.NoError(t, work.Wait())
}

func TestWhatIsNoDocument(t *testing.T) {
	_, err := handover.Pack(func() {})
	require.Error(t, err)
	whole, err := handover.Pack(strings.Repeat("a", 1<<20))
	require.NoError(t, err)
	require.Less(t, len(whole), 10_000)
	var text string
	require.NoError(t, handover.UnpackWithin(whole, 1<<20+3, &text)) // quotes, and the end of the line
	require.Len(t, text, 1<<20)
	require.ErrorContains(t, handover.UnpackWithin(whole, 1<<20, &text), "more than 1048576 bytes")
	require.Error(t, handover.UnpackWithin(whole, 1<<21, &struct{}{}), "another document")
	for _, data := range [][]byte{nil, []byte("{}"), whole[:len(whole)/2], bytes.Replace(whole, whole[len(whole)-4:], []byte{0, 0, 0, 0}, 1)} {
		require.Error(t, handover.UnpackWithin(data, 1<<21, &text))
	}
}
