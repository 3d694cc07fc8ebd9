//go:build unix

package stack

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// The child must end however this process ends, also by kill -9, which no code of ours survives to see. So a watcher, a
// second child, holds one end of a pipe whose other end only this process has: end of file there means that this process
// is gone. Parent death signals would do on Linux alone, and there they follow the thread that forked, not the process.
const (
	// holdScript becomes dynoxide once told that the watcher is there, with the same process id; at end of file it ends.
	holdScript = `read -r _ <&3 && exec "$0" "$@" 3<&-`
	// watchScript ends at a line, which says that the child is gone, and kills the child at end of file.
	watchScript = `read -r _ || kill -KILL "$0"`
)

// process is dynoxide and its watcher. Both have process groups of their own: a Ctrl-C in the terminal reaches this
// process alone, which then has a server to finish its work with.
type process struct {
	cmd, watcher *exec.Cmd
	alarm        *os.File
}

// start runs binary, its output going to out. wait must be called.
func start(binary string, args []string, out io.Writer) (*process, error) {
	held, hold, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer held.Close()
	defer hold.Close()
	watched, alarm, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer watched.Close()

	//nolint:noctx // the child outlives the context of its start; its owner ends it
	p := &process{cmd: exec.Command("/bin/sh", append([]string{"-c", holdScript, binary}, args...)...), alarm: alarm}
	p.cmd.ExtraFiles = []*os.File{held}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.WaitDelay = pipeWait
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		_ = alarm.Close()
		return nil, err
	}
	//nolint:noctx // the watcher outlives this process
	p.watcher = exec.Command("/bin/sh", "-c", watchScript, strconv.Itoa(p.cmd.Process.Pid))
	p.watcher.Stdin = watched
	p.watcher.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.watcher.Start(); err != nil {
		_ = hold.Close()
		_ = p.cmd.Wait()
		_ = alarm.Close()
		return nil, err
	}
	if _, err := hold.Write([]byte("\n")); err != nil {
		_ = p.kill()
		_ = p.wait()
		return nil, err
	}
	return p, nil
}

// wait returns when dynoxide and its watcher have ended.
func (p *process) wait() error {
	err := p.cmd.Wait()
	_, _ = p.alarm.Write([]byte("\n")) // fails where somebody killed the watcher
	_ = p.alarm.Close()
	_ = p.watcher.Wait()
	return err
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// terminate asks dynoxide to end.
func (p *process) terminate() error { return p.cmd.Process.Signal(syscall.SIGTERM) }

// kill ends dynoxide at once.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}
