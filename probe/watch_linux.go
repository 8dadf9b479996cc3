package probe

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// events tells of the files in a folder that were closed by their writer, by inotify(7).
type events struct {
	dir  string
	file *os.File // the inotify instance; it does not block, so that a read waits in the runtime's poller
	conn syscall.RawConn
	done chan struct{} // closed when the reading has ended
}

func (e *events) start(dir string, closed func(name []byte)) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("inotify: %w", err)
	}
	e.dir, e.file, e.done = dir, os.NewFile(uintptr(fd), "inotify"), make(chan struct{})
	if e.conn, err = e.file.SyscallConn(); err != nil {
		return fmt.Errorf("inotify: %w", err)
	}
	go func() {
		defer close(e.done)
		e.read(closed)
	}()
	return nil
}

// follow watches the folder that has the name by now: vLLM may have removed it and made it again. For one that is watched
// already it does nothing.
func (e *events) follow() {
	// Whoever waits looks for itself too, so an error of either is no matter.
	_ = e.conn.Control(func(fd uintptr) {
		_, _ = unix.InotifyAddWatch(int(fd), e.dir, unix.IN_CLOSE_WRITE|unix.IN_ONLYDIR)
	})
}

// read hands on the names of events until the instance is closed.
func (e *events) read(closed func(name []byte)) {
	buffer := make([]byte, 16<<10) // some hundred events; the kernel keeps those that do not fit
	for {
		n, err := e.file.Read(buffer)
		if err != nil {
			return
		}
		// An event is wd, mask, cookie and the length of the name, each of 32 bits, and the name, filled up with NULs.
		for rest := buffer[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			length := int(binary.NativeEndian.Uint32(rest[12:]))
			name := rest[unix.SizeofInotifyEvent:][:length]
			closed(bytes.TrimRight(name, "\x00"))
			rest = rest[unix.SizeofInotifyEvent+length:]
		}
	}
}

func (e *events) stop() {
	_ = e.file.Close() // nothing was written; a second time is an error of no interest
	<-e.done
}
