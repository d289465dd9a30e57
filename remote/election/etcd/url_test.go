package etcd_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/election/etcd"
)

func TestParseURL(t *testing.T) {
	for url, want := range map[string]etcd.Address{
		"etcd://a:2379,b:2380,c/genv/lab": {Endpoints: []string{"http://a:2379", "http://b:2380", "http://c:2379"}, Key: "/genv/lab"},
		"etcds://etcd-1.lab:2379/x":       {Endpoints: []string{"https://etcd-1.lab:2379"}, Key: "/x", TLS: true},
		"etcd://[fd00::1]:2379/x":         {Endpoints: []string{"http://[fd00::1]:2379"}, Key: "/x"},
	} {
		got, err := etcd.ParseURL(url)
		require.NoError(t, err, url)
		require.Equal(t, want, got)
	}
	for url, why := range map[string]string{
		"":                            "write etcd://",
		"http://a:2379/x":             "write etcd://",
		"a:2379/x":                    "write etcd://",
		"etcd://a:2379":               "a key such as",
		"etcd://a:2379/":              "a key such as",
		"etcd://a:2379/x/":            "write the key as /x",
		"etcd://a:2379//x":            "write the key as /x",
		"etcd://a:2379/x/../y":        "write the key as /y",
		"etcd://root:secret@a:2379/x": "don't belong there",
		"etcd://root:s/e@a:2379/x":    "don't belong there",
		"etcd://a:2379,/x":            `"" is not an address`,
		"etcd:///x":                   `"" is not an address`,
		"etcd://a:b/x":                "is not an address",
		"etcd://a:0/x":                "is not an address",
		"etcd://a:65536/x":            "is not an address",
		"etcd://a:+1/x":               "is not an address",
		"etcd://:2379/x":              "is not an address",
		"etcd://fd00::1/x":            "is not an address",
		"etcd://a:2379/x?y":           "none of",
		"etcd://a:2379/" + strings.Repeat("x", 300): "at most 256 bytes",
	} {
		_, err := etcd.ParseURL(url)
		require.ErrorContains(t, err, why, url)
	}
}
