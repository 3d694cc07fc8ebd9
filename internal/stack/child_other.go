//go:build !unix

package stack

import (
	"io"
	"os/exec"
)

// process is dynoxide. Where there is no sh, it outlives a parent that is killed.
type process struct{ cmd *exec.Cmd }

func start(binary string, args []string, out io.Writer) (*process, error) {
	//nolint:noctx // the child outlives the context of its start; its owner ends it
	p := &process{cmd: exec.Command(binary, args...)}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.WaitDelay = pipeWait
	return p, p.cmd.Start()
}

func (p *process) wait() error { return p.cmd.Wait() }

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) terminate() error { return p.cmd.Process.Kill() }

func (p *process) kill() error { return p.cmd.Process.Kill() }
