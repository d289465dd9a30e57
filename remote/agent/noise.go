package agent

import (
	"bytes"
	"encoding/json"
	"errors"
)

// jsonIn is the JSON object that a command's output ends with. What a login shell
// prints first may hold braces, whole objects, or no newline at its end; each whole
// object goes to before. After the last one only blanks may follow. If there is none,
// it is what begins at the first brace, which is no JSON; nil without a brace.
func jsonIn(output []byte, before func(object []byte)) []byte {
	first := bytes.IndexByte(output, '{')
	if first < 0 {
		return nil
	}
	effort := 4 * len(output) // a host must not keep the controller busy with braces
	for at := first; effort > 0; {
		var bad *json.SyntaxError
		if !errors.As(json.Unmarshal(output[at:], &struct{}{}), &bad) {
			return output[at:]
		}
		effort -= int(bad.Offset)
		after := at + 1
		if whole := output[at : at+int(bad.Offset)-1]; json.Valid(whole) { // the error is what follows it
			before(whole)
			after = at + len(whole)
		}
		next := bytes.IndexByte(output[after:], '{')
		if next < 0 {
			break
		}
		at = after + next
	}
	return output[first:]
}
