#!/bin/bash
# Takes the pictures of the docs from a kept demo: `make screenshots`. It needs chromium, curl, tmux
# and aha (which turns a terminal's colours into HTML). Tests compare columns.txt with the page and with `top`.
set -euo pipefail
cd "$(dirname "$0")/../.."

missing=
for program in chromium curl tmux aha; do
	command -v "$program" >/dev/null || missing="$missing $program"
done
if [ -n "$missing" ]; then
	echo "Install these first:$missing" >&2
	exit 1
fi

work=$(mktemp -d)
demo=
finish() {
	tmux -S "$work/tmux" kill-server 2>/dev/null || :
	[ -z "$demo" ] || { kill -INT "$demo" 2>/dev/null && wait "$demo"; } || :
	rm -rf "$work"
}
trap finish EXIT

# browser WIDTH,HEIGHT URL FILE
browser() {
	timeout 60 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --user-data-dir="$work/chromium" \
		--force-device-scale-factor=1.5 --window-size="$1" --screenshot="$3" "$2" 2>/dev/null
}

go build -o "$work/genv-demo" ./cmd/genv-demo
: >"$work/log"
"$work/genv-demo" -genv bin/genv -keep >"$work/log" 2>&1 &
demo=$!
echo "Waiting for the demo"
until grep -q 'waits for' "$work/log"; do # the first process that breaks a rule
	kill -0 "$demo" || { cat "$work/log" >&2; exit 1; }
	sleep 0.2
done
page=$(awk '$1 == "page" { print $2 }' "$work/log")
config=$(sed -n 's/.*GENV_CONFIG_DIR=\([^ ]*\).*/\1/p' "$work/log" | head -n 1)

# Eight seconds remain in which the findings are there: on the tab of GPUs, which fill the window.
tmux -S "$work/tmux" new-session -d -x 124 -y 28 "COLORTERM=truecolor TERM=xterm-256color GENV_CONFIG_DIR=$config bin/genv remote top"
sleep 2
tmux -S "$work/tmux" send-keys 2
sleep 1
tmux -S "$work/tmux" capture-pane -e -p >"$work/top"
browser 1280,1110 "$page" docs/images/page.png
{
	curl -s "$page" | grep -o '<th scope="col"[^>]*>[^<]*' | sed 's/.*>//' | paste -sd'|'
	tmux -S "$work/tmux" capture-pane -p | sed -n 3p
} >docs/images/columns.txt
{
	echo '<style>body { margin: 0; background: #16181d } pre { margin: 14px 18px; font: 15px/1.35 "DejaVu Sans Mono", monospace }</style>'
	aha --black --no-header <"$work/top" | sed '1s/^/<body style="color: #e6e6e6"><pre>/'
	echo '</pre></body>'
} >"$work/top.html"
browser 1158,600 "file://$work/top.html" docs/images/top.png
ls -l docs/images/*.png
