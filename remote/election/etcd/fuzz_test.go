package etcd

import (
	"errors"
	"net/http"
	"testing"
)

// Whatever a member answers: there is a value or an error, and errors are short.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"header":{"cluster_id":"1","revision":"2"},"kvs":[{"key":"L2s=","create_revision":"7","mod_revision":"8","lease":"-1"}],"count":"1"}`,
		`{"result":{"ID":"7","TTL":"5"}}`, `{"error":{"grpc_code":5,"http_code":404,"message":"requested lease not found"}}`,
		`{"error":"x","code":16,"message":"etcdserver: invalid auth token"}`, `{}`, `[]`, `null`, `{"error":1}`, "",
	} {
		f.Add(seed, http.StatusOK)
		f.Add(seed, http.StatusInternalServerError)
	}
	f.Fuzz(func(t *testing.T, data string, status int) {
		var answer rangeAnswer
		err := decode(status, []byte(data), &answer)
		if status != http.StatusOK && err == nil {
			t.Fatal("an error that is none")
		}
		var refused *MemberError
		if errors.As(err, &refused) && (len(refused.Message) > maxMessage || refused.Message == "") {
			t.Fatal(refused)
		}
	})
}
