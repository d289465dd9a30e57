package handover

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// writers are kept, since each has tables of almost a megabyte, and documents are written every second.
var writers = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// pack returns a document as controllers keep it in etcd: JSON, compressed.
func pack(document any) ([]byte, error) {
	var b bytes.Buffer
	w := writers.Get().(*gzip.Writer)
	defer writers.Put(w)
	w.Reset(&b)
	if err := json.NewEncoder(w).Encode(document); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// unpackWithin reads what pack compressed into a document. JSON of more than limit bytes is an error: whoever can
// write to etcd may have made it up.
func unpackWithin(data []byte, limit int, document any) error {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err != nil {
		return err
	}
	if len(text) > limit {
		return fmt.Errorf("it has more than %d bytes", limit)
	}
	return json.Unmarshal(text, document)
}
