package watch

// Method is how opens of devices are watched.
type Method string

// The methods, the best one first.
const (
	ByFanotify Method = "fanotify" // with the PID of the opener
	ByInotify  Method = "inotify"  // without it
	NotAtAll   Method = "interval" // only looks at intervals find who uses a device
)

// MethodOf tries out how a Watcher of this process would watch the opens of the device nodes
// in a folder. The error is why it would not be by fanotify; nil if it would.
func MethodOf(devDir string) (Method, error) { return methodOf(devDir, false) }

func methodOf(devDir string, noFanotify bool) (Method, error) {
	files, err := newFolders(&Config{DevDir: devDir})
	if err != nil {
		return NotAtAll, err
	}
	defer files.close()
	opens, err := openFanotify(noFanotify, files.nodes())
	if err != nil {
		return ByInotify, err
	}
	opens.close()
	return ByFanotify, nil
}
