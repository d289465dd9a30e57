package leadership_test

import (
	"bytes"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

func TestAWarningOfClearText(t *testing.T) {
	for url, members := range map[string]string{
		"etcd://127.0.0.1/genv/lab":                       "",
		"etcd://127.9.8.7:1,localhost:2,[::1]:3/genv/lab": "",
		"etcd://LocalHost/genv/lab":                       "",
		"etcds://10.0.0.1,etcd-2/genv/lab":                "",
		"etcd://10.0.0.1/genv/lab":                        "10.0.0.1:2379",
		"etcd://127.0.0.1,etcd-2,[fd00::1]:2380/genv/lab": "etcd-2:2379 [fd00::1]:2380",
		"etcd://127.0.0.1.example.org/genv/lab":           "127.0.0.1.example.org:2379",
		"etcd://[fe80::1%25eth0]:1/genv/lab":              "error",
	} {
		for _, login := range []string{"", "ann:secret"} {
			config, err := read(true, map[string]string{"GENV_LEADER_LOGIN": login}, "--leader", url)
			if members == "error" {
				require.Error(t, err, url)
				continue
			}
			require.NoError(t, err)
			var log bytes.Buffer
			config.WarnOfClearText(zerolog.New(&log))
			if members == "" {
				require.Empty(t, log.String(), url)
				continue
			}
			require.Contains(t, log.String(), `"members":"`+members+`"`)
			require.Contains(t, log.String(), "--leader etcds://")
			require.Equal(t, login != "", bytes.Contains(log.Bytes(), []byte("the password of ann and")))
			require.NotContains(t, log.String(), "secret")
		}
	}
	config, err := read(true, nil)
	require.NoError(t, err)
	var log bytes.Buffer
	config.WarnOfClearText(zerolog.New(&log))
	require.Empty(t, log.String(), "there is no election")
}
