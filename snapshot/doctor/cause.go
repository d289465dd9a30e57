package doctor

import (
	_ "embed"
	"strings"
)

// Cause is why a check isn't OK. The words appear in JSON.
type Cause string

// causes has a line for each cause: its status, and the next step unless that depends on the host.
//
//go:embed causes.txt
var causes string

// meaningOf is what follows from a cause. One that is not known here failed, and has no next step.
func meaningOf(c Cause) (status CheckStatus, step string) {
	_, line, known := strings.Cut("\n"+causes, "\n"+string(c)+" ")
	if !known {
		return Failed, ""
	}
	line, _, _ = strings.Cut(line, "\n")
	word, step, _ := strings.Cut(line, " ")
	return CheckStatus(word), step
}
