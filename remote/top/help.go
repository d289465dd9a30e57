package top

// help is shown with ?.
var help = []string{
	"A GPU is a letter: . free, a attached or idle, A busy, ! finding, ? unknown,",
	"x exempt.",
	"",
	"1-7, Tab, left, right   another tab",
	"up, down, j, k          another row; also PgUp, PgDn, g, G",
	"Enter, Esc              into a host, GPU or user; out again",
	"/                       filter: host~gpu-1 user=bob mem>40g state=finding",
	"s, S                    sort by the next column; the other way round",
	"Space                   tag a row: actions are for all tagged rows",
	"o                       ssh to the host",
	"p, Ctrl-L               pause; draw the screen again",
	"q                       quit",
	"",
	"With --allow-actions, each after a reason and a confirmation:",
	"t terminate   w warn   d detach   e exempt for hours   h hold or release all",
}
