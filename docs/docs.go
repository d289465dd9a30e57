// Package docs has the pages of this folder that the program prints too.
package docs

import _ "embed"

// Agents is agents.md, which `genv help agents` prints.
//
//go:embed agents.md
var Agents string
